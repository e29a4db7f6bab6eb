"""Whose an object is: the job that Kubernetes' garbage collector deletes it with."""

from dataclasses import dataclass
from typing import Any

from snapshot_engine.wire.spec import API_VERSION, KIND
from streamingjob_operator import naming


@dataclass(frozen=True)
class Owner:
    name: str
    namespace: str
    uid: str

    def reference(self) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            # The operator's rights do not include finalizers, and nothing has to wait for these objects.
            "blockOwnerDeletion": False,
        }

    def metadata(self, name: str, component: str | None = None) -> dict[str, Any]:
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": naming.job_labels(self.name, self.uid, component),
            "ownerReferences": [self.reference()],
        }
