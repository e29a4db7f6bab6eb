"""A second node: pods there speak to pods here, and it can be lost for real."""

import time

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def pod(name, node, image, command):
    spec = {
        "containers": [{"name": "main", "image": image, "command": command}],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


SERVER = "import http.server as h; h.HTTPServer(('', 8080), h.SimpleHTTPRequestHandler).serve_forever()"
FETCH = """
from urllib.request import urlopen
try:
    print(urlopen('http://{}:8080', timeout=5).status)
except OSError as error:
    print(error)
"""


def serving_pod(name, node, image):
    """Ready only when it serves."""
    manifest = pod(name, node, image, ["python", "-c", SERVER])
    manifest["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    return manifest


def fetch(namespace, client, host):
    return namespace.execute(client, "python", "-c", FETCH.format(host)).strip()


def wait_for_condition(cluster, node, status, seconds):
    """Seconds until the node's Ready condition has that status."""
    from localcluster.waiting import wait_for

    began = time.monotonic()
    wait_for(f"{node.name} Ready={status}", lambda: cluster.local.node_condition(node) == status, seconds=seconds)
    return time.monotonic() - began


def test_pods_of_both_nodes_reach_each_other_by_address_and_by_service(namespace, project_image, second_node):
    ports = [{"port": 8080}]
    for name, node in (("here", "node-1"), ("there", second_node.name)):
        service = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}}
        namespace.apply(serving_pod(name, node, project_image), {"apiVersion": "v1", "kind": "Service", **service})
    addresses = {name: namespace.wait_until_ready(name, seconds=120)["status"]["podIP"] for name in ("here", "there")}
    for client, server in (("here", "there"), ("there", "here")):
        assert fetch(namespace, client, addresses[server]) == "200"
        namespace.wait_for("the service", lambda c=client, s=server: fetch(namespace, c, s) == "200", seconds=20)


def test_a_killed_node_is_noticed_and_can_come_back(namespace, project_image, cluster, second_node):
    namespace.apply(pod("victim", second_node.name, project_image, ["sleep", "3600"]))
    namespace.wait_until_ready("victim", seconds=120)
    second_node.kill()
    took = wait_for_condition(cluster, second_node, "Unknown", 120)
    print(f"a killed node was NotReady after {took:.0f} s")
    assert namespace.get("pod", "victim")["status"]["phase"] == "Running", "nobody is there to say otherwise"

    cluster.local.add_node(2)
    assert cluster.local.node_condition(second_node) == "True"


def test_a_node_whose_link_is_cut_is_noticed_and_recovers_when_it_is_mended(namespace, cluster, second_node):
    second_node.cut_link()
    print(f"a node without a link was NotReady after {wait_for_condition(cluster, second_node, 'Unknown', 120):.0f} s")
    second_node.mend_link()
    print(f"Ready again {wait_for_condition(cluster, second_node, 'True', 60):.0f} s after it was mended")
