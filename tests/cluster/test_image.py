"""The image in its roles, as the strictest clusters run it: any user id, nothing writable but /tmp."""

import pytest

pytestmark = pytest.mark.cluster

ANY_USER = 1234567


def restricted_pod(name, image, args, command=None, env=None):
    """As a cluster with the `restricted` pod security standard and arbitrary user ids runs it."""
    container = {
        "name": "main",
        "image": image,
        "args": args,
        **({"command": command} if command else {}),
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": ANY_USER,
            "runAsGroup": ANY_USER,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {"containers": [container], "restartPolicy": "Never", "volumes": [{"name": "tmp", "emptyDir": {}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def output_of(namespace, image, *args, env=None):
    namespace.apply(restricted_pod("once", image, list(args), env=env))
    namespace.wait_for_phase("once", "Succeeded", seconds=180)
    return namespace.logs("once")


def test_any_other_command_is_run_as_it_is_by_an_arbitrary_user(namespace, project_image):
    text = output_of(namespace, project_image, "sh", "-c", "id -u; whoami; touch /etc/x 2>&1 || true; echo $PPID")
    uid, name, refused, _parent = text.splitlines()
    assert uid == str(ANY_USER)
    assert name == "streamingjob"
    assert "Read-only file system" in refused


def test_the_jvm_knows_its_user(namespace, project_image):
    """Without an entry in /etc/passwd Hadoop's login fails, and Spark with it."""
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print('USER', spark.sparkContext.sparkUser(), spark.range(10).count())\n"
    )
    assert "USER streamingjob 10" in output_of(namespace, project_image, "python", "-c", program)


def test_compiled_kernels_are_found_where_nothing_can_be_written(namespace, project_image):
    """Numba refuses a cache folder that it cannot write to, so the entrypoint gives it a copy."""
    program = (
        "import os, pathlib\n"
        "cache = pathlib.Path(os.environ['NUMBA_CACHE_DIR'])\n"
        "(cache / 'probe').touch()\n"
        "baked = {p.relative_to('/opt/numba-cache') for p in pathlib.Path('/opt/numba-cache').rglob('*')}\n"
        "found = {p.relative_to(cache) for p in cache.rglob('*')}\n"
        "print('COMPLETE', any(p.suffix == '.nbi' for p in baked), baked <= found)\n"
    )
    assert "COMPLETE True True" in output_of(namespace, project_image, "python", "-c", program)


def test_an_executor_without_sparks_environment_says_what_is_missing(namespace, project_image):
    namespace.apply(restricted_pod("executor", project_image, ["executor"], env={"SPARK_DRIVER_URL": "spark://x"}))
    pod = namespace.wait_for_phase("executor", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 64
    assert "executor needs SPARK_EXECUTOR_ID" in namespace.logs("executor")


@pytest.mark.parametrize(
    ("role", "expected"),
    [("operator", ["streamingjob-operator", "--flag", "two words"]), ("driver", ["streamingjob", "driver", "--flag"])],
)
def test_a_role_becomes_its_console_script_with_all_its_arguments(namespace, project_image, role, expected):
    """A stand-in on the PATH prints how it was called."""
    stand_in = (
        "mkdir /tmp/bin; for name in streamingjob streamingjob-operator; do "
        'printf \'#!/bin/sh\\necho "$(basename "$0")"; for each; do echo "$each"; done\\n\' > /tmp/bin/$name; '
        "chmod +x /tmp/bin/$name; done; "
        f'PATH=/tmp/bin:$PATH exec /opt/entrypoint.sh {role} --flag "two words"'
    )
    lines = output_of(namespace, project_image, "sh", "-c", stand_in).splitlines()
    assert lines[: len(expected)] == expected
    assert lines[-1] == "two words"


def test_the_console_scripts_are_installed(namespace, project_image):
    script = "for each in streamingjob streamingjob-operator tini java; do command -v $each; done"
    lines = output_of(namespace, project_image, "sh", "-c", script).split()
    assert lines == [
        "/opt/venv/bin/streamingjob",
        "/opt/venv/bin/streamingjob-operator",
        "/usr/bin/tini",
        "/usr/bin/java",
    ]


def test_the_image_names_a_numeric_user_that_is_not_root(namespace, project_image):
    """The kubelet refuses runAsNonRoot for an image whose user is a name."""
    manifest = restricted_pod("as-built", project_image, ["id", "-u"])
    security = manifest["spec"]["containers"][0]["securityContext"]
    del security["runAsUser"], security["runAsGroup"]
    namespace.apply(manifest)
    namespace.wait_for_phase("as-built", "Succeeded")
    assert namespace.logs("as-built") == "1000\n"
