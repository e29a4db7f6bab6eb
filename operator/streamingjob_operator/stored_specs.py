"""Keeps the versions of a job's spec that it may run, and gives them back."""

import logging

from streamingjob_operator import naming
from streamingjob_operator.kube import CONFIG_MAPS, ApiError, Body, Kube
from streamingjob_operator.manifests.ownership import Owner
from streamingjob_operator.manifests.stored_spec import (
    StoredSpec,
    UnreadableSpecError,
    build_stored_spec,
    read_stored_spec,
    resolve_spec,
)
from streamingjob_operator.owned import OwnedObjects
from streamingjob_operator.resource import Job

log = logging.getLogger(__name__)

NOT_FOUND = 404


class UnusableSpecError(ApiError):
    """No pod can be made from a stored spec as long as it is gone or cannot be read: certainly none was made."""

    def __init__(self, message: str) -> None:
        super().__init__(NOT_FOUND, "UnusableSpec", message)


class StoredSpecs:
    def __init__(self, kube: Kube, owned: OwnedObjects, default_image: str) -> None:
        self._kube = kube
        self._owned = owned
        self._default_image = default_image

    async def store(self, job: Job, spec_hash: str) -> Body:
        assert job.spec is not None, "only a spec that can be read is stored"
        owner = Owner(job.name, job.namespace, job.uid)
        stored = resolve_spec(job.spec, spec_hash, self._default_image)
        return await self._owned.ensure(CONFIG_MAPS, owner, build_stored_spec(owner, stored))

    async def read(self, job: Job, spec_hash: str) -> StoredSpec:
        """One that is gone or damaged is stored again if the live spec is the same; UnusableSpecError if not."""
        owner = Owner(job.name, job.namespace, job.uid)
        name = naming.stored_spec_name(job.name, job.uid, spec_hash)
        config_map = await self._owned.read(CONFIG_MAPS, owner, name)
        try:
            return _read(name, config_map)
        except UnusableSpecError as error:
            if job.spec is None or naming.spec_hash(job.raw_spec) != spec_hash:
                raise
            log.warning("%s: it is made again, because %s", job.key, error.message)
        if config_map is not None:  # it cannot be changed
            await self._kube.delete(CONFIG_MAPS, job.namespace, name, uid=config_map["metadata"]["uid"])
        return _read(name, await self.store(job, spec_hash))

    async def drop_others(self, job: Job, keep: frozenset[str]) -> None:
        selector = f"{naming.UID_LABEL}={job.uid},{naming.SPEC_HASH_LABEL}"
        for config_map in await self._kube.list(CONFIG_MAPS, job.namespace, labels=selector):
            metadata = config_map["metadata"]
            if metadata["labels"][naming.SPEC_HASH_LABEL] not in keep:
                await self._kube.delete(CONFIG_MAPS, job.namespace, metadata["name"], uid=metadata["uid"])


def _read(name: str, config_map: Body | None) -> StoredSpec:
    try:
        if config_map is None:
            raise UnreadableSpecError("it is gone")
        return read_stored_spec(config_map)
    except UnreadableSpecError as error:
        message = f"the ConfigMap {name} keeps the spec that should run, and cannot be used: {error}"
        raise UnusableSpecError(f"{message}. Change the StreamingJob's spec to run that instead") from error
