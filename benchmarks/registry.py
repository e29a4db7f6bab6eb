"""All engines that can be compared, ours and the peers."""

from benchmarks.cells import OUR_ENGINE
from benchmarks.engines import Engine
from benchmarks.environments import PROJECT
from benchmarks.nexmark.queries import QUERIES
from benchmarks.peers.catalogue import PEERS

_QUERIES = tuple(QUERIES)
_TOPIC_QUERIES = ("q0", "q1", "q2", "tumbling", "q11")
_OURS = (
    Engine(OUR_ENGINE, "benchmarks.ours", PROJECT, _QUERIES, {"launcher": "spark"}, topic_queries=_TOPIC_QUERIES),
    Engine(
        "snapshot-engine-forked",
        "benchmarks.ours",
        PROJECT,
        _QUERIES,
        {"launcher": "forked"},
        topic_queries=_TOPIC_QUERIES,
    ),
)
ENGINES: tuple[Engine, ...] = (*_OURS, *PEERS)


def engines_named(names: list[str]) -> list[Engine]:
    """The engines of these names; all when none is named."""
    known = {engine.name: engine for engine in ENGINES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no engine is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(ENGINES)
