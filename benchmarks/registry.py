"""All engines that can be compared, ours and the peers."""

from benchmarks.engines import Engine
from benchmarks.peers.catalogue import PEERS

OUR_ENGINE = "snapshot-engine"
ENGINES: tuple[Engine, ...] = PEERS


def engines_named(names: list[str]) -> list[Engine]:
    """The engines of these names; all when none is named."""
    known = {engine.name: engine for engine in ENGINES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no engine is called {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else list(ENGINES)
