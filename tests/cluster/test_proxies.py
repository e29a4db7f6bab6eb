"""On a machine with a proxy the cluster's own addresses are reached directly."""

from localcluster.proxies import exceptions
from localcluster.settings import Network

NETWORK = Network("10.213")
OURS = "localhost,127.0.0.1,10.213.0.1,10.213.0.0/16"


def test_without_a_proxy_nothing_is_said():
    assert exceptions({"NO_PROXY": "example.com"}, NETWORK) == ""


def test_with_a_proxy_in_either_spelling_the_cluster_is_excepted():
    assert exceptions({"HTTPS_PROXY": "http://proxy:3128"}, NETWORK) == OURS
    assert exceptions({"http_proxy": "http://proxy:3128"}, NETWORK) == OURS


def test_what_was_excepted_already_stays_and_nothing_is_said_twice():
    env = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "example.com,localhost"}
    assert exceptions(env, NETWORK) == "example.com,localhost,127.0.0.1,10.213.0.1,10.213.0.0/16"
    assert exceptions({**env, "no_proxy": exceptions(env, NETWORK)}, NETWORK) == exceptions(env, NETWORK)
