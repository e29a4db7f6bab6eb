"""Who takes part in which cell, and what came of it."""

from dataclasses import dataclass, field

from benchmarks.cells import is_ours
from benchmarks.engines import Engine
from benchmarks.nexmark.queries import QUERIES
from benchmarks.settings import Run, Settings
from benchmarks.spread import spread

STEADY = 0.2
"""A spread that needs no further runs."""


@dataclass
class Outcome:
    """What happened to one engine in one cell. Times count only when `verdict` says that results were
    equal."""

    engine: Engine
    settings: Settings
    verdict: str = "not checked"
    equal: bool = False
    slices: int = 0
    runs: list[Run] = field(default_factory=list)


def takes_part(engine: Engine, settings: Settings) -> bool:
    """Not every engine can do every cell; one that checkpoints always is measured where checkpoints are
    on."""
    if settings.query not in (engine.topic_queries if settings.input == "topic" else engine.queries):
        return False
    if settings.parallelism not in engine.parallelisms:
        return False
    if engine.only_state and not QUERIES[settings.query].stateful:
        return False
    if QUERIES[settings.query].stateful and not settings.checkpoint_interval_ms:
        return engine.checkpoints != "always"
    return engine.checkpoints != "never" or not settings.checkpoint_interval_ms


def describe(settings: Settings) -> str:
    checkpoints = f"checkpoints each {settings.checkpoint_interval_ms} ms"
    query = f"{settings.query} from a topic" if settings.input == "topic" else settings.query
    return (
        f"{query}, {settings.stream.keys:,} {settings.stream.key_type} keys, "
        f"{settings.parallelism} slots, {checkpoints if settings.checkpoint_interval_ms else 'no checkpoints'}"
    )


def noisy(outcomes: list[Outcome]) -> list[Outcome]:
    """Those whose runs differ so much that a ratio made from them may be an accident. A peer that is far behind another
    in its cell is in no ratio."""
    return [each for each in outcomes if _spread_of(each) > STEADY and _could_be_best(each, outcomes)]


def _spread_of(outcome: Outcome) -> float:
    return spread([run.rows_per_core_s for run in outcome.runs]) if outcome.equal else 0.0


def _could_be_best(outcome: Outcome, outcomes: list[Outcome]) -> bool:
    if is_ours(outcome.engine.name):
        return True
    cell = describe(outcome.settings)
    peers = [o for o in outcomes if o.runs and describe(o.settings) == cell and not is_ours(o.engine.name)]
    return 2 * _quickest(outcome) >= max(map(_quickest, peers))


def _quickest(outcome: Outcome) -> float:
    return max(run.rows_per_core_s for run in outcome.runs)
