"""Whose an object is: the job that Kubernetes' garbage collector deletes it with."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from snapshot_engine.wire.spec import API_VERSION, KIND
from streamingjob_operator import naming


class Belonging(Enum):
    """Whose an object is that has the name of one of the job's."""

    OURS = "ours"
    FORMER = "former"
    """Of a StreamingJob of the same name that is no more: it goes when the garbage collector comes to it."""
    FOREIGN = "foreign"


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

    def belonging(self, metadata: dict[str, Any]) -> Belonging:
        references = metadata.get("ownerReferences") or []
        if any(reference["uid"] == self.uid for reference in references):
            return Belonging.OURS
        same_name = any((each["kind"], each["name"]) == (KIND, self.name) for each in references)
        return Belonging.FORMER if same_name else Belonging.FOREIGN
