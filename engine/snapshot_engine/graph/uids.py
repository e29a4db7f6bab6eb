"""The uid of every operator: given by the user, or derived so that the same pipeline gets the same ones."""

from __future__ import annotations

import re
from collections import Counter

from snapshot_engine.graph.logical import LogicalGraph, LogicalNode

ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A uid becomes a part of paths in checkpoint storage and of labels in metrics."""


def assign_uids(graph: LogicalGraph) -> dict[LogicalNode, str]:
    """Every node's uid; adds what is wrong with given ones to the graph's problems.

    A derived uid is that of the nearest operator upstream that was given one, the operator's name, and its
    number among those of the same name there: a change elsewhere in the pipeline does not change it.
    """
    uids = {node: node.uid for node in graph.nodes if node.uid is not None}
    _refuse_bad_ones(graph, uids)
    first_input = {edge.consumer: edge.producer for edge in reversed(graph.edges) if not edge.feedback}
    taken = set(uids.values())
    counts: Counter[str] = Counter()
    anchors: dict[LogicalNode, str] = {}
    for node in graph.nodes:
        upstream = first_input.get(node)
        anchor = node.uid or (anchors[upstream] if upstream is not None else "")
        anchors[node] = anchor
        if node.uid is None:
            uids[node] = _derive(anchor, node.name, counts, taken)
    return uids


def _derive(anchor: str, name: str, counts: Counter[str], taken: set[str]) -> str:
    stem = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:50] or "operator"
    prefix = f"{anchor[:40]}.{stem}" if anchor else stem
    while True:
        counts[prefix] += 1
        uid = f"{prefix}-{counts[prefix]}"
        if uid not in taken:
            taken.add(uid)
            return uid


def _refuse_bad_ones(graph: LogicalGraph, uids: dict[LogicalNode, str]) -> None:
    first: dict[str, LogicalNode] = {}
    for node, uid in uids.items():
        if not isinstance(uid, str) or not ALLOWED.fullmatch(uid):
            graph.refuse(
                node,
                f"uid {uid!r} is not allowed: at most 100 letters, digits, '.', '_' and '-', "
                "beginning with a letter or digit",
            )
        elif uid in first:
            other = first[uid]
            graph.refuse(
                node,
                f"uid {uid!r} is also that of {other.name!r} at {other.location}; "
                "state is kept by uid, so each operator needs its own",
            )
        else:
            first[uid] = node
