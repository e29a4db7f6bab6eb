"""The immutable ConfigMap that keeps one version of a job's spec, with everything resolved that a pod depends on.

Driver pods are always rendered from it, never from the live spec: so a driver that is replaced comes back as it was,
and the last good version is still there for a rollback.
"""

from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from snapshot_engine.wire.quantities import ACCEPTED_BEFORE
from snapshot_engine.wire.spec import API_VERSION, KIND, StreamingJob, StreamingJobSpec
from streamingjob_operator import naming
from streamingjob_operator.manifests.executor_template import build_executor_template
from streamingjob_operator.manifests.ownership import Owner

RENDER_VERSION = 1
MANIFEST_KEY = "job.yaml"
EXECUTOR_KEY = "executor.yaml"


@dataclass(frozen=True)
class StoredSpec:
    spec: StreamingJobSpec
    spec_hash: str
    image: str
    render_version: int = RENDER_VERSION


class UnreadableSpecError(ValueError):
    """A stored spec is damaged, or of a release that is too different."""


def resolve_spec(spec: StreamingJobSpec, spec_hash: str, default_image: str) -> StoredSpec:
    image = spec.image or default_image
    return StoredSpec(spec.model_copy(update={"image": image}), spec_hash, image)


def build_stored_spec(owner: Owner, stored: StoredSpec) -> dict[str, Any]:
    metadata = owner.metadata(naming.stored_spec_name(owner.name, owner.uid, stored.spec_hash))
    metadata["labels"][naming.SPEC_HASH_LABEL] = stored.spec_hash
    metadata["annotations"] = {naming.RENDER_VERSION_ANNOTATION: str(stored.render_version)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": {
            MANIFEST_KEY: _dump(_manifest(owner, stored.spec)),
            EXECUTOR_KEY: _dump(build_executor_template(owner, stored.spec)),
        },
    }


def read_stored_spec(config_map: dict[str, Any]) -> StoredSpec:
    """Fields that this release does not know are ignored: the operator that stored them may have been a newer one.
    An older one may have accepted what this one would refuse, and that runs."""
    metadata = config_map["metadata"]
    try:
        manifest = yaml.safe_load(config_map["data"][MANIFEST_KEY])
        job = StreamingJob.model_validate(manifest, extra="ignore", context=ACCEPTED_BEFORE)
        version = int(metadata.get("annotations", {}).get(naming.RENDER_VERSION_ANNOTATION, RENDER_VERSION))
        spec_hash = metadata["labels"][naming.SPEC_HASH_LABEL]
    except ValidationError as error:
        problems = error.errors(include_url=False)
        told = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in problems)
        raise UnreadableSpecError(told) from error
    except (KeyError, ValueError, yaml.YAMLError) as error:
        raise UnreadableSpecError(f"{type(error).__name__}: {error}") from error
    return StoredSpec(job.spec, spec_hash, job.spec.image or "", version)


def _manifest(owner: Owner, spec: StreamingJobSpec) -> dict[str, Any]:
    """What is not given is left out: an engine that is older than the operator does not know every field."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid},
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True),
    }


def _dump(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
