"""What the README tells a newcomer to do, in a fresh namespace."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
import yaml
from conftest import ROOT
from pipelines import KEYED, check_windows, rows_of
from streaming_job import StreamingJob

RATE = 2000
EXAMPLE = ROOT / "examples" / "kubernetes" / "orders.yaml"


@pytest.fixture
def restricted(namespace):
    """The namespace takes no pod that does not meet the strictest of the Pod Security Standards."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    namespace.cluster_kubectl("label", "namespace", namespace.name, label)


def test_helm_install_apply_wait_and_the_output_is_exact(restricted, operator, namespace, project_image):
    documents = list(yaml.safe_load_all(EXAMPLE.read_text()))
    claim, job = documents
    namespace.kubectl("apply", "-f", str(EXAMPLE))
    namespace.kubectl("wait", "--for=condition=Ready", "sj/orders", "--timeout=5m", timeout=310)
    print(namespace.kubectl("get", "sj"))

    orders = StreamingJob(namespace, "orders", claim["metadata"]["name"], project_image)
    assert orders.condition("Ready")["status"] == "True"
    status = orders.until_finished()
    print(namespace.kubectl("get", "sj"))
    assert status["checkpoint"]["lastCompletedId"] >= 1
    rows = rows_of(orders.output)
    assert pc.sum(rows["bids"]).as_py() == job["spec"]["pipeline"]["args"]["rows"]
    assert len(set(zip(rows["auction"].to_pylist(), rows["window_start"].to_pylist(), strict=True))) == rows.num_rows
    assert orders.condition("Completed")["status"] == "True"


def test_the_default_install_looks_after_every_namespace_and_its_jobs_outlive_it(not_installed, cluster, make_job):
    operator = not_installed
    operator.install_as_the_readme_says()
    job = make_job("orders")
    count = RATE * 90
    job.apply(KEYED, count=count, rate=RATE, parallelism=2)
    job.until_ready()
    job.until_checkpoint(1)

    operator.helm("uninstall", operator.release, "--wait")
    assert cluster.kubectl.get("crd", "streamingjobs.streamingjob.dev"), "it goes only with the user's word"
    before = job.status["checkpoint"]["lastCompletedId"]
    job.until_rows(500)
    operator.install_as_the_readme_says()

    job.until("news of the job", lambda s: s["checkpoint"]["lastCompletedId"] > before)
    operator.upgrade_as_the_readme_says("podAnnotations.upgraded=yes")
    status = job.until_finished()
    check_windows(job.output, count)
    assert status["driver"]["generation"] == 1 and status["restarts"] == 0


def test_helm_test_runs_a_small_job_as_often_as_it_is_asked_to(operator, namespace):
    claim = namespace.shared_volume("smoke")
    operator.install(f"test.claimName={claim}")
    for _ in range(2):
        print(operator.helm("test", operator.release, "--timeout=5m"))
    assert namespace.items("sj") == []
