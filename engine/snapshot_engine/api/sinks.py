"""Where streams end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_engine.graph.building import add_operator
from snapshot_engine.graph.logical import LogicalNode, Step
from snapshot_engine.operators.stream_type import StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream


class StreamEnd:
    """A sink that was added: it can be named, and nothing follows it."""

    def __init__(self, node: LogicalNode) -> None:
        self._node = node

    @property
    def sink(self) -> Any:
        """The sink object itself."""
        return self._node.sink

    def name(self, name: str) -> StreamEnd:
        """What the sink is called in plans, metrics and messages."""
        self._node.name = name
        return self

    def uid(self, uid: str) -> StreamEnd:
        """Under what its prepared transactions are kept in every checkpoint: never change it."""
        self._node.uid = uid
        return self

    def parallelism(self, parallelism: int) -> StreamEnd:
        """How many writers it has."""
        self._node.parallelism = parallelism
        return self


def write_to(stream: DataStream, sink: Any, name: str | None, uid: str | None, parallelism: int | None) -> StreamEnd:
    node = add_operator(stream.env.graph, "sink", [stream._end], lambda input: _write(sink, input))
    node.sink = sink
    node.name = name or (sink if isinstance(sink, type) else type(sink)).__name__
    node.uid = uid
    node.parallelism = parallelism
    return StreamEnd(node)


def _write(sink: Any, input: StreamType) -> Step:
    from snapshot_engine.operators.sink import SinkOperator

    if isinstance(sink, type):
        raise TypeError(f"{sink.__name__} is a class: make an object of it, {sink.__name__}(...)")
    lacking = [member for member in ("exactly_once", "open", "commit", "sweep") if not hasattr(sink, member)]
    if lacking:
        raise TypeError(f"{sink!r} is not a Sink: it has no {', '.join(lacking)}")
    check = getattr(sink, "check", None)
    if check is not None:
        check(input.schema)
    return Step(partial(SinkOperator, sink=sink, input=input), input, stateful=bool(sink.exactly_once))
