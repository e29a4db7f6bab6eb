"""Many jobs at once, each with a checkpoint a second: what that costs the operator and the API server."""

import asyncio
import os
import re
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

JOBS = 200
SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def api_calls(metrics):
    pattern = r"^streamingjob_operator_api_calls_total\{(.*?)\} (\S+)$"
    return Counter({labels: float(value) for labels, value in re.findall(pattern, metrics, re.MULTILINE)})


async def complete_checkpoints(masters):
    """Each driver reports a new checkpoint each second, all of them spread over it."""
    number = 1
    while True:
        number += 1
        for index, master in enumerate(masters):
            done = {"lastCompletedId": number, "completedAt": datetime.now(UTC).isoformat(), "completed": number}
            master.change(checkpoint=done)
            if index % 20 == 19:
                await asyncio.sleep(1 / (len(masters) / 20))


async def measure(what, operator):
    """Prints what the operator takes while nothing but progress happens; returns its API calls per second."""
    pid = operator.process.pid
    calls, cpu = api_calls(await operator.metrics()), cpu_seconds(pid)
    await asyncio.sleep(SECONDS)
    made = api_calls(await operator.metrics()) - calls
    used = (cpu_seconds(pid) - cpu) / SECONDS
    per_second = made.total() / SECONDS
    print(f"\n{JOBS} jobs, {what}: {used:.3f} cores, {resident_mib(pid):.0f} MiB, {per_second:.1f} API calls/s")
    print("\n".join(f"  {count / SECONDS:6.2f}/s {labels}" for labels, count in made.most_common()))
    return per_second


async def test_two_hundred_jobs_with_a_checkpoint_a_second_cost_little(jobs, cluster, operator):
    began = time.monotonic()
    await asyncio.gather(*(jobs.apply(f"job-{number}") for number in range(JOBS)))
    for number in range(JOBS):
        await jobs.until(lambda job: job["status"]["phase"] == "Running", f"job-{number}", seconds=600)
    print(f"\n{JOBS} jobs are up after {time.monotonic() - began:.0f} s")
    masters = list(cluster.masters.values())
    ticking = asyncio.create_task(complete_checkpoints(masters))
    try:
        await asyncio.sleep(10)
        rates = [await measure("each checkpoint is reported at once", operator)]
        for master in masters:
            master.holds_back_progress = True
        await asyncio.sleep(20)
        rates.append(await measure("drivers hold progress back as they are asked to", operator))
    finally:
        ticking.cancel()
    # One status write a job in fifteen seconds, and the resync's lists.
    assert max(rates) < JOBS / 15 * 1.5
    assert resident_mib(operator.process.pid) < 400
