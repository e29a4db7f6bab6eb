"""What the watches have shown so far: jobs, their pods, and nodes."""

from collections import Counter
from typing import Any

from streamingjob_operator import naming
from streamingjob_operator.observation import NodeView, PodView
from streamingjob_operator.pods import view_node, view_pod

Body = dict[str, Any]


class Store:
    def __init__(self) -> None:
        self.jobs: dict[str, Body] = {}
        """By uid."""
        self.nodes: dict[str, NodeView] = {}
        self._pods: dict[str, dict[str, PodView]] = {}
        """By job uid, then by name."""
        self.pod_events: Counter[str] = Counter()
        """By job uid: how many the watch has shown. A list that was asked for before the last one may be older."""

    def put_job(self, body: Body) -> bool:
        """Keeps the newer of what is known and what is given: a watch may lag behind the operator's own writes.

        True if it is news.
        """
        uid = body["metadata"]["uid"]
        known = self.jobs.get(uid)
        newer = known is None or _version(body) > _version(known)
        if newer:
            self.jobs[uid] = body
        return newer

    def drop_job(self, uid: str) -> None:
        self.jobs.pop(uid, None)
        self._pods.pop(uid, None)
        self.pod_events.pop(uid, None)

    def pods_of(self, job_uid: str) -> tuple[PodView, ...]:
        return tuple(self._pods.get(job_uid, {}).values())

    def put_pod(self, body: Body) -> str | None:
        """The uid of its job, or None if it belongs to none."""
        job_uid = body["metadata"].get("labels", {}).get(naming.UID_LABEL)
        if job_uid is not None:
            view = view_pod(body)
            self._pods.setdefault(job_uid, {})[view.name] = view
            self.pod_events[job_uid] += 1
        return str(job_uid) if job_uid is not None else None

    def drop_pod(self, body: Body) -> str | None:
        metadata = body["metadata"]
        job_uid = metadata.get("labels", {}).get(naming.UID_LABEL)
        pods = self._pods.get(job_uid, {})
        known = pods.get(metadata["name"])
        if known is not None and known.uid == metadata["uid"]:
            del pods[metadata["name"]]
        if job_uid is not None:
            self.pod_events[job_uid] += 1
        return str(job_uid) if job_uid is not None else None

    def replace_pods(self, job_uid: str, bodies: list[Body]) -> bool:
        """Set all pods of a job to what a fresh list showed; True if that was news."""
        fresh = {view.name: view for view in map(view_pod, bodies)}
        changed = fresh != self._pods.get(job_uid, {})
        self._pods[job_uid] = fresh
        return changed

    def put_node(self, body: Body) -> bool:
        """True if it is news."""
        view = view_node(body)
        changed = self.nodes.get(view.name) != view
        self.nodes[view.name] = view
        return changed

    def drop_node(self, name: str) -> None:
        """A node that is no more cannot be reached, either."""
        self.nodes[name] = NodeView(name, ready=False, unreachable=True)

    def jobs_on_node(self, name: str) -> list[str]:
        return [uid for uid, pods in self._pods.items() if any(pod.node == name for pod in pods.values())]


def _version(body: Body) -> int:
    return int(body["metadata"]["resourceVersion"])
