"""The status fits into etcd, and is quickly written, whatever a job's size and whatever its driver says."""

import json

import pytest

from snapshot_engine.wire.status import CheckpointStatus, RegionFailure, RegionState, SavepointState

LONG = "state of key " * 100_000


def size_of(status):
    return len(json.dumps(status))


def regions(world):
    failure = RegionFailure(at=world.now, cause="UserError", message=LONG)
    return [world.region(n, state=RegionState.FAILED, last_failure=failure) for n in range(1000)]


@pytest.mark.parametrize("what", ["regions", "checkpoint", "savepoints", "error"])
def test_the_status_stays_small(running, what):
    running.edit(savepointNonce=1)
    running.look()
    name = running.status["savepoints"][0]["name"]
    said = {
        "regions": lambda: regions(running),
        "checkpoint": lambda: CheckpointStatus(last_failure=LONG, failed=1),
        "savepoints": lambda: [running.savepoint(name, SavepointState.FAILED, error=LONG)],
        "error": lambda: LONG,
    }
    running.say(**{what: said[what]()})
    running.settle(2)
    assert size_of(running.status) < 150_000
    assert "state of key" in json.dumps(running.status)
