"""Executors that go the hard way: out of memory, evicted, with their node."""

from __future__ import annotations

import json
import time

import pyarrow.compute as pc
import pytest
from pipelines import REGIONS, check_regions
from streaming_job import TOLERATED, moment
from test_executor_loss import (
    LONGEST_GAP_SECONDS,
    MOST_SECONDS,
    a_working_executor,
    longest_gap,
    region_of,
    seconds_away,
    start_three_regions,
)

RATE = 600
SPREAD = {"spread": "evenly"}
COUNT = RATE * 120
"""Long enough for a busy machine to start the last executor before the first region has ended."""

# A slot that finds a file of its region's name takes more memory than its pod may have. The kernel kills the largest
# process: the slot itself, or, where many small ones take the memory, the executor's JVM and so the container.
GREEDY = REGIONS.replace(
    "    splits = env.parallelism\n",
    """    splits = env.parallelism

    def number(o):
        import subprocess
        from pathlib import Path

        region = int(o[0]) % splits if len(o) else -1
        mine = Path(out).parent / f"take-all-memory-yourself-{region}"
        others = Path(out).parent / f"have-all-memory-taken-{region}"
        if mine.exists():
            mine.unlink()
            hoard = [bytearray(b"x" * (64 << 20)) for _ in range(64)]
        if others.exists():
            others.unlink()
            make_the_jvm_the_first_to_go()
            take = "import time; hoard = b'x' * (24 << 20); time.sleep(60)"
            hoarders = [subprocess.Popen(["python", "-I", "-S", "-c", take]) for _ in range(48)]
        return o.astype(np.int64)

    def make_the_jvm_the_first_to_go():
        from pathlib import Path

        pid = os.getppid()
        while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")

""",
).replace('"n": lambda o: o.astype(np.int64),', '"n": number,')


def others_are_undisturbed(job, region, before):
    others = {name: number for name, number in before.items() if name != str(region)}
    return {name: job.attempts()[name] for name in others} == others


def finish_and_measure(job, region):
    """The output is exact, the region was away for so long at most, and nothing of it was seen in the others."""
    failed_at = moment(job.regions()[str(region)]["lastFailure"]["at"])
    job.until_finished()
    rows = check_regions(job.output, COUNT)
    away = seconds_away(rows, region, failed_at)
    gaps = {n: longest_gap(rows, n, failed_at - 5, failed_at + 5) for n in range(3) if n != region}
    print(job.events("ExecutorLost"), job.events("RegionRecovered"))
    print(f"processing again {away:.2f} s after the failure; gaps elsewhere {gaps}")
    assert max(gaps.values()) < LONGEST_GAP_SECONDS
    assert away <= MOST_SECONDS


def test_a_slot_that_the_kernel_kills_for_its_memory_takes_only_its_region_with_it(job):
    pod, region, before = run_out_of_memory(job, "take-all-memory-yourself")
    assert pod in job.running("executor"), "the slot died, and the container lives on"
    assert others_are_undisturbed(job, region, before)
    finish_and_measure(job, region)


def test_a_container_that_the_kernel_kills_for_its_memory_takes_only_its_region_with_it(job):
    pod, region, before = run_out_of_memory(job, "have-all-memory-taken")
    job.namespace.wait_for("the container's end", lambda: pod not in job.running("executor") or None)
    said = job.events("ExecutorLost")
    assert any(pod in message and "OOMKilled" in message for message in said), said
    assert others_are_undisturbed(job, region, before)
    finish_and_measure(job, region)


def run_out_of_memory(job, order):
    """Returns the pod and the region that it happened to, and all attempts before, when all regions run again."""
    start_three_regions(job, source=GREEDY, count=COUNT)
    pod, (region,) = a_working_executor(job)
    before = job.attempts()
    job.contents.touch(f"out/{order}-{region}")
    job.until("the region's restart", lambda s: job.attempts()[str(region)] > before[str(region)], seconds=90)
    job.until_running()
    return pod, region, before


def test_an_evicted_executor_takes_only_its_region_with_it(job):
    start_three_regions(job, count=COUNT)
    pod, (region,) = a_working_executor(job)
    before = job.attempts()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{job.namespace.name}/pods/{pod}/eviction"
    job.namespace.cluster_kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    job.until("the region's restart", lambda s: job.attempts()[str(region)] > before[str(region)], seconds=60)
    job.until_running()
    assert others_are_undisturbed(job, region, before)
    finish_and_measure(job, region)


def place_holder(number, node, image):
    """A pod that counts when executors are spread: so many of them fewer go to this node."""
    container = {"name": "sleep", "image": image, "command": ["sleep", "3600"]}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    metadata = {"name": f"place-holder-{number}", "labels": SPREAD}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("how", ["cut off", "dead"])
def test_a_lost_node_takes_only_the_region_that_was_there(own_node, operator, make_job, how):
    """One executor of four is on it; the standby is elsewhere."""
    operator.stay_on("node-1")
    job = make_job("orders")
    job.namespace.apply(*(place_holder(number, own_node.name, job.image) for number in range(2)))
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": SPREAD},
    }
    small = {"name": "executor", "resources": {"requests": {"cpu": "20m"}}}
    template = {
        "metadata": {"labels": SPREAD},
        "spec": {"topologySpreadConstraints": [spread], "tolerations": TOLERATED, "containers": [small]},
    }
    home = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}, "containers": [{**small, "name": "driver"}]}
    job.apply(
        count=COUNT,
        rate=RATE,
        parallelism=3,
        driver={"memory": "1Gi", "podTemplate": {"spec": home}},
        executor={"instances": 3, "standby": 1, "podTemplate": template},
    )
    job.until_ready()
    job.namespace.wait_for("three executors and a standby", lambda: len(job.running("executor")) == 4 or None)
    job.until_checkpoint(3)
    job.until_rows(RATE)
    pod, region = the_region_on(job, own_node.name)
    before = job.attempts()
    lost_at = time.time()
    if how == "dead":
        own_node.kill()
    else:
        own_node.cut_link()
    job.until(f"region {region} to restart", lambda s: job.attempts()[region] > before[region], seconds=120)
    job.until_running()
    assert others_are_undisturbed(job, region, before)
    if how == "cut off":
        own_node.mend_link()
    job.until_finished()
    rows = check_regions(job.output, COUNT)
    elsewhere = rows.filter(pc.and_(pc.equal(rows["region"], int(region)), pc.not_equal(rows["pod"], pod)))
    away = seconds_away(elsewhere, int(region), lost_at)
    print(job.events("ExecutorLost"), job.events("RegionRecovered"))
    print(f"{how}: {pod} and region {region}, which is processing again after {away:.2f} s")
    assert away <= MOST_SECONDS


def the_region_on(job, node):
    """Of the executor there. Where it happened to be the standby, it takes over from another one first."""
    (pod,) = [pod["metadata"]["name"] for pod in job.pods("executor") if pod["spec"].get("nodeName") == node]
    if not region_of(job, pod):
        (other, *_) = [name for name in job.running("executor") if region_of(job, name)]
        job.namespace.kubectl("delete", "pod", other)
        job.namespace.wait_for(f"a region on {pod}", lambda: region_of(job, pod) or None)
        job.namespace.wait_for("a new standby", lambda: len(job.running("executor")) == 4 or None)
        job.until_running()
        completed = job.status["checkpoint"]["lastCompletedId"]
        job.until_checkpoint(completed + 2)
    (region,) = region_of(job, pod)
    return pod, str(region)
