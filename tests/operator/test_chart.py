"""The test of an installed release, as helm renders it: the job is made where the operator watches."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from localcluster.testing.fixtures import *  # noqa: F403  fixtures are found by their names here

from streamingjob_operator import smoke_test

pytestmark = pytest.mark.cluster  # helm is provided with the tools of the cluster

CHART = Path(__file__).parents[2] / "charts" / "streamingjob-operator"
STORAGE = {"pvc": {"claimName": "c"}}


@pytest.fixture
def render(tool):
    def render(*settings, expect_error=False):
        options = [word for setting in settings for word in ("--set", setting)]
        helm = str(tool("helm"))
        command = [helm, "template", "x", str(CHART), "--namespace", "ops", "--kube-version", "1.35.0", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == expect_error, done.stderr
        return done.stderr if expect_error else [each for each in yaml.safe_load_all(done.stdout) if each]

    return render


@pytest.fixture
def notes(tool, api_server):
    """`helm template` leaves them out, and a dry run of an installation asks the API server for its version."""

    def notes(*settings):
        options = [word for setting in settings for word in ("--set", setting)]
        command = [str(tool("helm")), "install", "x", str(CHART), "--namespace", "ops", "--dry-run=client", *options]
        environment = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:\n")[2]

    return notes


@pytest.mark.parametrize(("watched", "option"), [("null", ""), ("{a}", " -n a"), ("{b,a}", " -n b")])
def test_the_first_steps_in_the_notes_are_taken_where_the_operator_watches(notes, watched, option):
    told = notes(f"watchNamespaces={watched}")
    assert told.startswith("The StreamingJob operator is installed")
    steps = [line.strip() for line in told.splitlines() if line.strip().startswith("kubectl")]
    assert steps[:4] == [
        f"kubectl apply{option} -f examples/kubernetes/orders.yaml",
        f"kubectl wait{option} --for=condition=Ready sj/orders --timeout=5m",
        f"kubectl get{option} sj",
        f"kubectl describe{option} sj orders",
    ]


def of_test(documents):
    """What only the test makes, by kind."""
    hooks = [each for each in documents if each["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"]
    return {each["kind"]: each for each in hooks}


def options_of(pod):
    """As the program takes them."""
    (container,) = pod["spec"]["containers"]
    *program, module = container["args"][:3]
    assert program == ["python", "-m"] and module == smoke_test.__name__
    return smoke_test.main.make_context("test", container["args"][3:]).params


@pytest.mark.parametrize(
    ("watched", "namespace"), [("null", "ops"), ("{ops}", "ops"), ("{a,ops}", "ops"), ("{a}", "a"), ("{b,a}", "b")]
)
def test_the_job_of_helm_test_is_made_where_the_operator_watches(render, watched, namespace):
    made = of_test(render(f"watchNamespaces={watched}"))
    assert options_of(made["Pod"])["namespace"] == namespace
    assert {kind: each["metadata"]["namespace"] for kind, each in made.items()} == {
        "ServiceAccount": "ops",
        "Pod": "ops",
        "Role": namespace,
        "RoleBinding": namespace,
    }
    name = made["ServiceAccount"]["metadata"]["name"]
    assert made["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "ops"}]
    assert made["RoleBinding"]["roleRef"]["name"] == made["Role"]["metadata"]["name"]
    assert made["Pod"]["spec"]["serviceAccountName"] == name


def test_the_job_of_helm_test_names_its_account_where_the_operator_makes_none(render):
    settings = ["jobs.serviceAccounts=false", "test.claimName=c", "test.serviceAccountName=runner"]
    options = options_of(of_test(render(*settings))["Pod"])
    assert (options["claim"], options["service_account"]) == ("c", "runner")
    job = smoke_test.job("ops", STORAGE, options["service_account"])
    assert job["spec"]["serviceAccountName"] == "runner"


def test_the_job_of_helm_test_names_no_account_where_the_operator_makes_one(render):
    options = options_of(of_test(render("test.claimName=c"))["Pod"])
    assert "serviceAccountName" not in smoke_test.job("ops", STORAGE, options["service_account"])["spec"]


def test_a_service_account_that_cannot_be_is_refused_with_the_name_of_the_value(render):
    assert "serviceAccountName" in render("test.serviceAccountName=Not_A_Name", expect_error=True)
