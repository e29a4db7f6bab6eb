"""Makes and reads the objects of a job, and never takes over what belongs to another: not even to a former job of the
same name, whose objects Kubernetes' garbage collector may not have removed yet."""

from streamingjob_operator.kube import ApiError, Body, Kind, Kube
from streamingjob_operator.manifests.ownership import Belonging, Owner

ALREADY_EXISTS = 409


class NameTakenError(ApiError):
    """An object of the job cannot be made, because its name belongs to something else as long as that is there."""

    def __init__(self, message: str) -> None:
        super().__init__(ALREADY_EXISTS, "NameTaken", message)

    @property
    def is_refusal(self) -> bool:
        return True


class OwnedObjects:
    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def read(self, kind: Kind, owner: Owner, name: str) -> Body | None:
        """The owner's object of that name; raises NameTakenError if it is somebody else's."""
        present = await self._kube.get(kind, owner.namespace, name)
        if present is not None:
            _require_own(kind, owner, present)
        return present

    async def ensure(self, kind: Kind, owner: Owner, body: Body) -> Body:
        """Make it, unless it is there already; then it stays as it is."""
        # Asked before it is made: a quota that is used up refuses to make even what is there already.
        present = await self.read(kind, owner, body["metadata"]["name"])
        return present if present is not None else await self._make(kind, owner, body)

    async def ensure_same(self, kind: Kind, owner: Owner, body: Body) -> Body:
        """Make it, or bring it to what is given."""
        present = await self.read(kind, owner, body["metadata"]["name"])
        if present is None:
            return await self._make(kind, owner, body)
        # The uid makes it a condition that it is still that very object.
        metadata = {**body["metadata"], "uid": present["metadata"]["uid"]}
        return await self._kube.apply(kind, {**body, "metadata": metadata})

    async def _make(self, kind: Kind, owner: Owner, body: Body) -> Body:
        try:
            return await self._kube.create(kind, body)
        except ApiError as error:
            if error.status != ALREADY_EXISTS:
                raise
            present = await self.read(kind, owner, body["metadata"]["name"])  # made by a request that seemed to fail
            if present is None:
                raise
            return present


def _require_own(kind: Kind, owner: Owner, present: Body) -> None:
    metadata = present["metadata"]
    thing = f"{kind.plural}/{metadata['name']} in namespace {owner.namespace}"
    match owner.belonging(metadata):
        case Belonging.FORMER:
            raise NameTakenError(
                f"{thing} belongs to a former StreamingJob of the same name and should go with it; "
                "it is waited for. If it stays, delete it"
            )
        case Belonging.FOREIGN:
            raise NameTakenError(
                f"{thing} is there already and does not belong to this StreamingJob; "
                "delete it, or give the job another name"
            )
