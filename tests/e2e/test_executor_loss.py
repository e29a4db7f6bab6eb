"""An executor is lost: only its region restarts, at once, and the output is exact."""

from __future__ import annotations

import time

import numpy as np
import pyarrow.compute as pc
from pipelines import REGIONS, check_regions, rows_of

RATE = 600
COUNT = RATE * 60
MOST_SECONDS = 1.5
LONGEST_GAP_SECONDS = 1.0
"""In a region that nothing happened to, on a machine that does other things as well."""


def start_three_regions(job, source=REGIONS, count=COUNT):
    executor = {"instances": 3, "standby": 1, "podTemplate": asking_for("executor", "200m")}
    driver = {"memory": "1Gi", "podTemplate": asking_for("driver", "300m")}
    job.apply(source, count=count, rate=RATE, parallelism=3, executor=executor, driver=driver)
    job.until_ready()
    job.namespace.wait_for("three executors and a standby", lambda: len(job.running("executor")) == 4 or None)
    job.until_checkpoint(3)


def asking_for(container, processors):
    """A share of the machine that recovery can rely on, whatever else runs there."""
    return {"spec": {"containers": [{"name": container, "resources": {"requests": {"cpu": processors}}}]}}


def region_of(job, pod):
    """Which region's slots are in the pod, by the output so far."""
    rows = rows_of(job.output)
    there = rows.filter(pc.equal(rows["pod"], pod))
    return set(there["region"].to_pylist())


def a_working_executor(job):
    job.until_rows(RATE)
    for pod in job.running("executor"):
        regions = region_of(job, pod)
        if regions:
            return pod, regions
    raise AssertionError("no executor has a region")


def longest_gap(rows, region, start, end):
    at = np.sort(rows.filter(pc.equal(rows["region"], region))["at"].to_numpy())
    at = at[(at > start) & (at < end)]
    return float(np.diff(at).max())


def seconds_away(rows, region, since):
    """Until the region made rows again."""
    at = rows.filter(pc.equal(rows["region"], region))["at"].to_numpy()
    return float(at[at > since].min()) - since


def test_only_the_region_of_a_deleted_executor_restarts_and_within_one_and_a_half_seconds(job, delete_now):
    start_three_regions(job)
    pod, regions = a_working_executor(job)
    assert len(regions) == 1, "three regions are on three executors"
    (region,) = regions
    before = job.attempts()

    with job.watching(f'{{.status.regions[?(@.id=="{region}")].attempt}}={before[str(region)] + 1}'):
        killed_at = delete_now(pod)
    job.until_running()
    back = job.namespace.wait_for(
        "the standby to be back", lambda: len(job.running("executor")) == 4 or None, seconds=60, every=0.2
    )
    standby_after = time.time() - killed_at
    assert back
    attempts = job.attempts()
    others = [str(n) for n in range(3) if n != region]
    assert {name: attempts[name] for name in others} == {name: before[name] for name in others}
    assert job.regions()[str(region)]["lastRestoredCheckpoint"] is not None
    job.until_finished()

    rows = check_regions(job.output, COUNT)
    again = rows.filter(pc.and_(pc.equal(rows["region"], region), pc.not_equal(rows["pod"], pod)))
    away = min(at for at in again["at"].to_pylist() if at > killed_at) - killed_at
    gaps = {n: longest_gap(rows, n, killed_at - 5, killed_at + 5) for n in range(3) if n != region}
    print(job.events("RegionRecovered"))
    print(f"processing again {away:.2f} s after the kill; gaps elsewhere {gaps}; standby back {standby_after:.1f} s")
    assert max(gaps.values()) < LONGEST_GAP_SECONDS
    assert away <= MOST_SECONDS
    assert standby_after <= 30
    said = job.events("ExecutorLost")
    assert any(pod in message and "from checkpoint" in message for message in said), said
