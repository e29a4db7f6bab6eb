"""A real Kubernetes on one Linux machine, without Docker and without an image registry.

The control plane runs as plain processes. Each node is one process tree with a network, a mount and a
process namespace of its own: containerd, kubelet and kube-proxy live in there, and so do the pods. So the
host sees one bridge, one link per node and one cgroup, and the end of a node's first process ends all of it.

Nothing here imports anything outside Python's standard library: `make cluster` needs no virtual environment.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  the machine's own python3, whichever that is
    sys.exit(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
