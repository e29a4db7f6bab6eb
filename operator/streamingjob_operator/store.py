"""What the watches have shown so far: jobs, their pods, and nodes."""

from collections import Counter
from typing import Any

from streamingjob_operator import naming
from streamingjob_operator.observation import NodeView, PodView
from streamingjob_operator.pods import view_node, view_pod

Body = dict[str, Any]

EVENTS_REMEMBERED = 10_000
"""Of a job's pods: more than come while a list is on its way, and there may be two."""


class Store:
    def __init__(self) -> None:
        self.jobs: dict[str, Body] = {}
        """By uid."""
        self.nodes: dict[str, NodeView] = {}
        self._pods: dict[tuple[str, str], dict[str, PodView]] = {}
        """By job uid and namespace, then by name. A pod in another namespace may bear the job's labels, and is not
        the job's."""
        self.pod_events: Counter[str] = Counter()
        """By job uid: how many the watch has shown. A list that was asked for before the last one may be older."""
        self._last_events: dict[str, dict[tuple[str, str], int]] = {}
        """By job uid, then by namespace and name: the number of a pod's last event."""

    def put_job(self, body: Body, *, known_when_asked: str | None = None) -> bool:
        """Keeps the newer of what is known and what is given: a watch may lag behind the operator's own writes.

        An answer of the API server that is older than what was known when it was asked says that the server itself has
        gone back, as one does that was restored from a backup: then the answer counts. True if it is news.
        """
        uid = body["metadata"]["uid"]
        known = self.jobs.get(uid)
        if known is None or _version(body) > _version(known):
            news = True
        else:
            news = known["metadata"]["resourceVersion"] == known_when_asked and _version(body) < _version(known)
        if news:
            self.jobs[uid] = body
        return news

    def drop_job(self, uid: str) -> None:
        self.jobs.pop(uid, None)
        for key in [key for key in self._pods if key[0] == uid]:
            del self._pods[key]
        self.pod_events.pop(uid, None)
        self._last_events.pop(uid, None)

    def versions(self) -> dict[str, str]:
        """By job uid: the resourceVersion that is known."""
        return {uid: body["metadata"]["resourceVersion"] for uid, body in self.jobs.items()}

    def jobs_of_pods(self) -> set[str]:
        """The uids of all jobs that pods were seen of, whether the jobs are known or not."""
        return {uid for uid, _ in self._pods} | set(self.pod_events)

    def pods_of(self, job_uid: str) -> tuple[PodView, ...]:
        """None as long as the job is not known."""
        job = self.jobs.get(job_uid)
        return tuple(self._pods.get((job_uid, job["metadata"]["namespace"]), {}).values()) if job is not None else ()

    def put_pod(self, body: Body) -> str | None:
        """The uid of its job, or None if it belongs to none."""
        job_uid = body["metadata"].get("labels", {}).get(naming.UID_LABEL)
        if job_uid is not None:
            view = view_pod(body)
            self._pods.setdefault((job_uid, body["metadata"]["namespace"]), {})[view.name] = view
            self._count_event(job_uid, body)
        return str(job_uid) if job_uid is not None else None

    def _count_event(self, job_uid: str, body: Body) -> None:
        self.pod_events[job_uid] += 1
        which = (body["metadata"]["namespace"], body["metadata"]["name"])
        self._last_events.setdefault(job_uid, {})[which] = self.pod_events[job_uid]

    def drop_pod(self, body: Body) -> str | None:
        metadata = body["metadata"]
        job_uid = metadata.get("labels", {}).get(naming.UID_LABEL)
        pods = self._pods.get((job_uid, metadata["namespace"]), {})
        known = pods.get(metadata["name"])
        if known is not None and known.uid == metadata["uid"]:
            del pods[metadata["name"]]
        if job_uid is not None:
            self._count_event(job_uid, body)
        return str(job_uid) if job_uid is not None else None

    def replace_pods(self, job_uid: str, bodies: list[Body], *, asked_after: int) -> bool:
        """Set all pods of a job to what a fresh list showed; True if that was news.

        The list was asked for after so many events. A pod that the watch has shown since is left as it was shown: the
        list may be older.
        """
        job = self.jobs.get(job_uid)
        if job is None:
            return False
        namespace = job["metadata"]["namespace"]
        own = [view_pod(body) for body in bodies if body["metadata"]["namespace"] == namespace]
        before, listed = self._pods.get((job_uid, namespace), {}), {view.name: view for view in own}
        last_events = self._last_events.get(job_uid, {})
        shown = {name for (where, name), last in last_events.items() if last > asked_after and where == namespace}
        oldest = asked_after - EVENTS_REMEMBERED
        self._last_events[job_uid] = {which: last for which, last in last_events.items() if last > oldest}
        fresh = {name: view for name, view in listed.items() if name not in shown}
        fresh |= {name: view for name, view in before.items() if name in shown}
        self._pods[job_uid, namespace] = fresh
        return fresh != before

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
        return [uid for (uid, _), pods in self._pods.items() if any(pod.node == name for pod in pods.values())]


def _version(body: Body) -> int:
    return int(body["metadata"]["resourceVersion"])
