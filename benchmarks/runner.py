"""Runs a plan: engines take turns on each cell, again and again, so that a change of the machine hits all
alike."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.check import check
from benchmarks.engines import Engine, Session, directory_of, discard_work
from benchmarks.launch import WorkerFailedError
from benchmarks.outcomes import Outcome, describe, noisy, takes_part
from benchmarks.plan import Plan
from benchmarks.settings import Run, Settings
from benchmarks.sizing import PROBES, scaled, slices_for, small_settings


def run_plan(
    plan: Plan,
    engines: list[Engine],
    journal: Path,
    tell: Callable[[str], None],
    after_turn: Callable[[list[Outcome]], None],
) -> list[Outcome]:
    """Every run is noted in the journal as soon as it is measured: an interrupted plan loses nothing."""
    outcomes = [Outcome(engine, scaled(cell, engine.scale)) for engine, cell in turns_of(plan, engines)]
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.unlink(missing_ok=True)
    with ExitStack() as stack:
        kept = None if plan.fresh_workers else KeptSessions(stack)
        for repetition in range(max(plan.repetitions, plan.most_repetitions)):
            for outcome in outcomes if repetition < plan.repetitions else noisy(outcomes):
                _take_turn(plan, outcome, repetition, kept, tell)
                _note(journal, outcome)
                after_turn(outcomes)
    return outcomes


def turns_of(plan: Plan, engines: list[Engine]) -> list[tuple[Engine, Settings]]:
    """Who takes which cell, in order."""
    turns: dict[object, tuple[Engine, Settings]] = {}
    for cell in plan.cells:
        for engine in engines:
            if takes_part(engine, cell):
                turns.setdefault(_turn_key(plan, engine, cell), (engine, cell))
    return list(turns.values())


def _turn_key(plan: Plan, engine: Engine, cell: Settings) -> object:
    if plan.once:
        return engine.name, cell.query, cell.stream.key_type
    return engine.name, cell.query, cell.stream, cell.parallelism, cell.checkpoint_interval_ms, cell.input


class KeptSessions:
    """One worker per engine for the whole plan; a worker that failed is replaced."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._open: dict[str, tuple[Session, ExitStack]] = {}

    @contextmanager
    def use(self, engine: Engine) -> Iterator[Session]:
        if engine.name not in self._open:
            own = self._stack.enter_context(ExitStack())
            self._open[engine.name] = (own.enter_context(engine.open()), own)
        session, own = self._open[engine.name]
        try:
            yield session
        except WorkerFailedError:
            del self._open[engine.name]
            own.close()
            raise


def _take_turn(
    plan: Plan, outcome: Outcome, repetition: int, kept: KeptSessions | None, tell: Callable[[str], None]
) -> None:
    if repetition and not outcome.equal:
        return
    label = f"{outcome.engine.name} {describe(outcome.settings)}"
    try:
        with kept.use(outcome.engine) if kept else outcome.engine.open() as session:
            if kept is None or not repetition:
                _check_and_warm_up(session, outcome)
                tell(f"{label}: {outcome.verdict}")
            if outcome.equal:
                _measure(session, outcome, plan.target_seconds)
                run = outcome.runs[-1]
                tell(f"{label}: {run.rows_per_s:,.0f} rows/s, {run.rows_per_core_s:,.0f} per core-second")
    except WorkerFailedError as error:
        outcome.equal, outcome.verdict = False, f"failed: {error}"
        tell(f"{label}: {outcome.verdict}")


def _check_and_warm_up(session: Session, outcome: Outcome) -> None:
    comparison, _ = check(session, small_settings(outcome.settings, outcome.engine.scale))
    outcome.equal, outcome.verdict = comparison.equal, comparison.describe()


def _measure(session: Session, outcome: Outcome, target_seconds: float) -> None:
    short = session.run(replace(outcome.settings, slices=1))
    if not outcome.slices:
        outcome.slices = _find_slices(session, outcome.settings, short, target_seconds)
    settings = replace(outcome.settings, slices=outcome.slices)
    outcome.runs.append(session.run(settings).after(short))
    discard_work(directory_of(outcome.engine, settings))


def _find_slices(session: Session, settings: Settings, short: Run, target_seconds: float) -> int:
    """Probe with more and more slices until the run is clearly longer than a short one. It gets no fewer than that: a
    rate in which starting the job is most of it would be unfair."""
    for slices in PROBES if target_seconds else ():
        probe = session.run(replace(settings, slices=slices))
        if probe.after(short).short or slices == PROBES[-1]:
            return max(slices, slices_for(short, probe, slices, target_seconds))
    return 1


def _note(journal: Path, outcome: Outcome) -> None:
    record = outcome.runs[-1].as_dict() if outcome.runs else {"engine": outcome.engine.name}
    with journal.open("a") as file:
        file.write(json.dumps({**record, "verdict": outcome.verdict}) + "\n")
