"""`python -m snapshot_engine.simulator N=20000 SEED=1`: run schedules, count faults and violations.

With N=1 the schedule is told step by step. BUG=name plants one of the known bugs.
"""

from __future__ import annotations

import sys
import time

from snapshot_engine.simulator.planted import BUGS, NO_BUG
from snapshot_engine.simulator.runner import Tally, run_many
from snapshot_engine.simulator.schedule import run_schedule

SHOWN = 10  # violations told one by one


def main(arguments: list[str]) -> int:
    settings = dict(argument.partition("=")[::2] for argument in arguments)
    if unknown := settings.keys() - {"N", "SEED", "BUG"}:
        print(f"unknown setting {', '.join(sorted(unknown))}: write N=…, SEED=… or BUG=…", file=sys.stderr)
        return 2
    count, seed, bug = int(settings.get("N") or 20000), int(settings.get("SEED") or 1), settings.get("BUG") or None
    if bug is not None and bug not in BUGS:
        print(f"no bug is called {bug!r}; there are: {', '.join(BUGS)}", file=sys.stderr)
        return 2
    return _tell_one(seed, bug) if count == 1 else _run(seed, count, bug)


def _tell_one(seed: int, bug: str | None) -> int:
    planted = BUGS[bug] if bug else NO_BUG
    try:
        outcome = run_schedule(seed, planted.parts, planted.jobs, note=print)
    except Exception as error:
        print(f"1 schedule, violation: {type(error).__name__}: {error}")
        return 1
    print(f"1 schedule, {outcome.steps} steps, {dict(outcome.faults)}, 0 violations")
    return 0


def _run(seed: int, count: int, bug: str | None) -> int:
    begun = time.perf_counter()
    tally = Tally()
    for outcome in run_many(seed, count, bug):
        tally.add(outcome)
        if outcome.violation is not None and len(tally.violations) <= SHOWN:
            print(f"violation with SEED={outcome.seed} N=1: {outcome.violation}", flush=True)
    seconds = time.perf_counter() - begun
    print(tally.coverage())
    print(f"{tally.line()}; {seconds:.1f} s, {tally.schedules / seconds:.0f} schedules/s")
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
