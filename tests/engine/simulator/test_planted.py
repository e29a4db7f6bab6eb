"""The simulator finds each bug that is planted. How many schedules it takes stands in docs/developers/simulator.md."""

import pytest

from snapshot_engine.simulator.planted import BUGS
from snapshot_engine.simulator.schedule import run_schedule

QUICK = 300  # schedules, several times what most of the common ones take
SLOW = 20_000

RARE = {
    "stale acknowledgement accepted",
    "log cleaned too early",
}


def schedules_until_found(bug: str, most: int) -> int | None:
    planted = BUGS[bug]
    outcomes = (run_schedule(seed, planted.parts, planted.jobs) for seed in range(1, most + 1))
    return next((number for number, outcome in enumerate(outcomes, 1) if outcome.violation is not None), None)


@pytest.mark.parametrize("bug", sorted(BUGS.keys() - RARE))
def test_a_planted_bug_is_found(bug):
    assert schedules_until_found(bug, QUICK) is not None


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", sorted(RARE))
def test_a_planted_bug_that_needs_a_rare_schedule_is_found(bug):
    assert schedules_until_found(bug, SLOW) is not None


@pytest.mark.parametrize("first", [1, 51, 101])
def test_without_a_bug_nothing_is_found(first):
    violations = [run_schedule(seed).violation for seed in range(first, first + 50)]
    assert violations == [None] * 50
