"""Pods of the project's image find each other as they do in any cluster: by DNS, by service, by address."""

import json

import pytest
from localcluster.testing.claim_contents import ClaimContents
from localcluster.testing.namespace import Namespace

pytestmark = pytest.mark.cluster

SERVER = "import http.server as h; h.HTTPServer(('', 8080), h.SimpleHTTPRequestHandler).serve_forever()"


def pod(name, image, command, labels=None, **spec):
    container = {"name": "main", "image": image, "command": command, "resources": {"requests": {"cpu": "10m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec},
    }


def service(name, app, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}], **spec},
    }


def python(namespace, pod_name, program):
    return json.loads(namespace.execute(pod_name, "python", "-c", f"import json\n{program}"))


def resolve(namespace, pod_name, host):
    return python(namespace, pod_name, f"import socket\nprint(json.dumps(socket.gethostbyname('{host}')))")


def status_of(namespace, pod_name, url):
    """Or what went wrong: right after a start, the service's rules may not be there yet."""
    program = (
        "from urllib.request import urlopen\n"
        f"try: answer = urlopen('{url}', timeout=5).status\n"
        "except OSError as error: answer = str(error)\n"
        "print(json.dumps(answer))"
    )
    return python(namespace, pod_name, program)


@pytest.fixture
def web(namespace, project_image):
    """A server behind a service with an address and behind one without, and a client."""
    namespace.apply(
        pod("server", project_image, ["python", "-c", SERVER], {"app": "web"}),
        pod("client", project_image, ["sleep", "3600"]),
        service("web", "web"),
        service("web-pods", "web", clusterIP="None"),
    )
    namespace.wait_until_ready("server")
    namespace.wait_until_ready("client")
    return namespace


def test_a_pod_resolves_the_api_server_and_a_headless_service_and_reaches_a_cluster_ip(web):
    api_server = web.cluster_kubectl.get("service", "kubernetes", "default")
    server = web.get("pod", "server")

    assert resolve(web, "client", "kubernetes.default.svc") == api_server["spec"]["clusterIP"]
    assert resolve(web, "client", "web-pods") == server["status"]["podIP"]

    cluster_ip = web.get("service", "web")["spec"]["clusterIP"]
    web.wait_for("the service's rules", lambda: status_of(web, "client", f"http://{cluster_ip}") == 200, seconds=20)
    assert status_of(web, "client", "http://web") == 200


def test_a_pod_speaks_to_the_api_server_as_its_service_account_and_may_do_nothing_else(namespace, project_image):
    namespace.apply(pod("caller", project_image, ["sleep", "3600"]))
    namespace.wait_until_ready("caller")
    program = """
import ssl, urllib.request, urllib.error
folder = '/var/run/secrets/kubernetes.io/serviceaccount/'
request = urllib.request.Request('https://kubernetes.default.svc/api/v1/secrets')
request.add_header('Authorization', 'Bearer ' + open(folder + 'token').read())
context = ssl.create_default_context(cafile=folder + 'ca.crt')
try:
    urllib.request.urlopen(request, context=context)
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.load(error)['message']]))
"""
    code, message = python(namespace, "caller", program)
    assert code == 403
    assert f"system:serviceaccount:{namespace.name}:default" in message


def test_a_claim_that_names_no_class_is_bound_and_what_a_pod_writes_is_seen_in_any_cluster(namespace, project_image):
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "any"}, "spec": claim})
    volumes = [{"name": "any", "persistentVolumeClaim": {"claimName": "any"}}]
    command = ["sh", "-c", "mkdir -m 777 /any/folder; echo text > /any/folder/file"]
    manifest = pod("writer", project_image, command, volumes=volumes)
    manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "any", "mountPath": "/any"}]
    namespace.apply(manifest)
    namespace.wait_for_phase("writer", "Succeeded")

    elsewhere = Namespace(namespace.cluster_kubectl, namespace.name)
    for seen_from in (namespace, elsewhere):
        contents = ClaimContents(seen_from, "any", project_image)
        contents.touch("folder/another")
        folder = contents.folder() / "folder"
        assert (folder / "file").read_text() == "text\n"
        assert sorted(file.name for file in folder.iterdir()) == ["another", "file"]
        (folder / "another").unlink()
    elsewhere.leave()


def test_pods_share_a_volume(namespace, project_image):
    claim = namespace.shared_volume("checkpoints")
    volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}]
    for name, command in (("writer", "echo written > /shared/file"), ("reader", "cat /shared/file")):
        manifest = pod(name, project_image, ["sh", "-c", command], volumes=volumes)
        manifest["spec"]["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
        namespace.apply(manifest)
        namespace.wait_for_phase(name, "Succeeded")
    assert namespace.logs("reader") == "written\n"
