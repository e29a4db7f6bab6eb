"""Random small jobs for schedules: with and without loops."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.simulator.topology import Edge, Kind, Split, Topology, Vertex

MOST_COPIES = 3  # what the counting lanes of a record leave room for, with doubles to be noticed


def random_topology(random: Random, exchanges: list[Exchange]) -> Topology:
    """One or two sources, up to three steps or windows, one or two sinks."""
    width = 1 + int(random.random() * 2)
    vertices = [
        Vertex(f"source{i}", Kind.SOURCE, 1 + int(random.random() * width)) for i in range(1 + int(random.random() * 2))
    ]
    edges: list[Edge] = []
    unread = list(vertices)
    windowed: set[str] = set()

    def connect(producer: Vertex, consumer: Vertex) -> None:
        edges.append(_random_edge(random, len(edges), producer, consumer, exchanges))
        if producer in unread:
            unread.remove(producer)
        if producer.name in windowed:
            windowed.add(consumer.name)

    for number in range(int(random.random() * 3.5)):
        producers = [random.choice(unread)]
        others = [v for v in vertices if v is not producers[0]]
        if others and random.random() < 0.45:
            producers.append(random.choice(others))
        kind = Kind.STEP
        if random.random() < 0.35 and not any(p.name in windowed for p in producers):
            kind = Kind.WINDOW
        vertex = Vertex(f"{kind.value}{number}", kind, 1 + int(random.random() * width))
        for producer in producers:
            connect(producer, vertex)
        if kind is Kind.WINDOW:
            windowed.add(vertex.name)
        vertices.append(vertex)
        unread.append(vertex)
    sinks = 0
    while unread:
        sink = Vertex(f"sink{sinks}", Kind.SINK, 1 + int(random.random() * width))
        sinks += 1
        together = list(unread) if random.random() < 0.6 else [unread[0]]
        for producer in together:
            connect(producer, sink)
        vertices.append(sink)
    topology = Topology(vertices, edges)
    if any(times > MOST_COPIES for by in topology.multiplicity.values() for times in by.values()):
        return random_topology(random, exchanges)
    return topology


def with_side_sink(random: Random, topology: Topology, exchanges: list[Exchange]) -> Topology:
    """The same job, with a sink of its own for what a vertex hands on already: one region may then have slots that
    keep logs and slots that keep none.
    """
    read = [vertex for vertex in topology.vertices if vertex.kind in (Kind.SOURCE, Kind.STEP)]
    producer = random.choice(read)
    sink = Vertex("side_sink", Kind.SINK, 1 + int(random.random() * 2))
    edge = _random_edge(random, len(topology.edges), producer, sink, exchanges, copies=False)
    return Topology([*topology.vertices, sink], [*topology.edges, edge])


def _random_edge(
    random: Random,
    number: int,
    producer: Vertex,
    consumer: Vertex,
    exchanges: list[Exchange],
    copies: bool = True,
) -> Edge:
    chance = random.random() if copies else random.random() * 0.92
    if consumer.kind is Kind.WINDOW or chance < 0.45:
        split = Split.HASH
    elif producer.parallelism == consumer.parallelism and chance < 0.75:
        split = Split.FORWARD
    elif chance < 0.92:
        split = Split.REBALANCE
    else:
        split = Split.BROADCAST
    return Edge(number, producer, consumer, split, exchanges[int(random.random() * len(exchanges))])


def random_loop(random: Random, exchanges: list[Exchange], fewest: int = 1) -> Topology:
    """Sources into a loop, perhaps with a loop inside it, into a sink, perhaps over a window. `fewest`: subtasks of
    each vertex.
    """
    width = 1 + int(random.random() * 2)

    def vertex(name: str, kind: Kind) -> Vertex:
        vertices.append(Vertex(name, kind, max(fewest, 1 + int(random.random() * width))))
        return vertices[-1]

    def connect(producer: Vertex, consumer: Vertex, inside: bool = False) -> None:
        allowed = [Exchange.PIPELINED] if inside else exchanges
        edges.append(_random_edge(random, len(edges), producer, consumer, allowed, copies=False))

    def feed_back(producer: Vertex, consumer: Vertex) -> None:
        plain = _random_edge(random, len(edges), producer, consumer, [Exchange.PIPELINED], copies=False)
        edges.append(replace(plain, feedback=True))

    vertices: list[Vertex] = []
    edges: list[Edge] = []
    sources = [vertex(f"source{i}", Kind.SOURCE) for i in range(1 + int(random.random() * 2))]
    outer = vertex("outer_head", Kind.HEAD)
    connect(sources[0], outer)
    inside = outer
    if random.random() < 0.3:
        inner = vertex("inner_head", Kind.HEAD)
        inner_body = vertex("inner_body", Kind.BODY)
        connect(outer, inner, inside=True)
        connect(inner, inner_body, inside=True)
        feed_back(inner_body, inner)
        inside = inner_body
    body = vertex("outer_body", Kind.BODY)
    connect(inside, body, inside=True)
    for _ in range(1 + int(random.random() * 2)):
        feed_back(body, outer)
    if len(sources) > 1:  # beside the loop, or into the middle of it
        connect(sources[1], body if random.random() < 0.5 else outer)
    last = body
    if random.random() < 0.3:
        last = vertex("window", Kind.WINDOW)
        connect(body, last)
    connect(last, vertex("sink", Kind.SINK))
    return Topology(vertices, edges)
