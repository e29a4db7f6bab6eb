"""Runs a plan, cell by cell: engines take turns on each, again and again, so that a change of the machine hits all
alike."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from benchmarks.batching import batch_rows_for
from benchmarks.check import check
from benchmarks.engines import Engine, Session, directory_of, discard_work
from benchmarks.launch import WorkerFailedError
from benchmarks.outcomes import Outcome, describe, noisy, takes_part
from benchmarks.plan import Plan
from benchmarks.settings import Settings
from benchmarks.sizing import SIZES, Try, next_try, scaled, small_settings


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

    def turn_is_over(outcome: Outcome) -> None:
        _note(journal, outcome)
        after_turn(outcomes)

    with ExitStack() as stack:
        whole_plan = KeptSessions(stack) if plan.once else None
        for _, cell in groupby(outcomes, key=lambda outcome: describe(outcome.settings)):
            _run_cell(plan, list(cell), whole_plan, tell, turn_is_over)
    return outcomes


def _run_cell(
    plan: Plan,
    outcomes: list[Outcome],
    kept: "KeptSessions | None",
    tell: Callable[[str], None],
    turn_is_over: Callable[[Outcome], None],
) -> None:
    """Processes are kept for one cell at most where figures count: those of all cells would take the memory that files
    are cached in, and each would be as large as its largest cell made it."""
    with ExitStack() as stack:
        if kept is None and not plan.fresh_workers:
            kept = KeptSessions(stack)
        for repetition in range(max(plan.repetitions, plan.most_repetitions)):
            for outcome in outcomes if repetition < plan.repetitions else noisy(outcomes):
                _take_turn(plan, outcome, kept, tell)
                turn_is_over(outcome)


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
    """One worker per engine; a worker that failed is replaced."""

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


def _take_turn(plan: Plan, outcome: Outcome, kept: KeptSessions | None, tell: Callable[[str], None]) -> None:
    if outcome.runs and not outcome.equal:
        return
    label = f"{outcome.engine.name} {describe(outcome.settings)}"
    try:
        with kept.use(outcome.engine) if kept else outcome.engine.open() as session:
            if session.warm_for != describe(outcome.settings):
                _check(session, outcome)
                tell(f"{label}: {outcome.verdict}")
                if outcome.equal:
                    _warm_up(session, outcome, plan)
            if outcome.equal:
                _measure(session, outcome)
                run = outcome.runs[-1]
                tell(f"{label}: {run.rows_per_s:,.0f} rows/s, {run.rows_per_core_s:,.0f} per core-second")
    except WorkerFailedError as error:
        outcome.equal, outcome.verdict = False, f"failed: {error}"
        tell(f"{label}: {outcome.verdict}")


def _check(session: Session, outcome: Outcome) -> None:
    comparison, _ = check(session, small_settings(outcome.settings, outcome.engine.scale))
    outcome.equal, outcome.verdict = comparison.equal, comparison.describe()


def _warm_up(session: Session, outcome: Outcome, plan: Plan) -> None:
    """Finds the size of the measured runs too, and of micro-batches. What was found before is where it begins."""
    session.warm_for = describe(outcome.settings)
    outcome.slices = outcome.slices or 1
    if not plan.target_seconds:
        return
    one_slice = replace(outcome.settings, slices=1)
    short = min(session.run(one_slice), session.run(one_slice), key=lambda run: run.seconds)
    tries: list[Try] = []
    first = max(outcome.slices, SIZES[1])
    while (slices := next_try(short, tries, plan.target_seconds, first)) is not None and len(tries) < plan.most_tries:
        run = session.run(replace(outcome.settings, slices=slices))
        tries.append(Try(slices, run))
        batch_rows = batch_rows_for(run)
        if batch_rows is not None:
            options = {**outcome.settings.options, "batch_rows": batch_rows}
            outcome.settings = replace(outcome.settings, options=options)
    outcome.slices = tries[-1].slices


def _measure(session: Session, outcome: Outcome) -> None:
    short = session.run(replace(outcome.settings, slices=1))
    settings = replace(outcome.settings, slices=outcome.slices)
    outcome.runs.append(session.run(settings).after(short))
    discard_work(directory_of(outcome.engine, settings))


def _note(journal: Path, outcome: Outcome) -> None:
    record = outcome.runs[-1].as_dict() if outcome.runs else {"engine": outcome.engine.name}
    with journal.open("a") as file:
        file.write(json.dumps({**record, "verdict": outcome.verdict}) + "\n")
