"""The API server, as plain dicts: an asynchronous client with short timeouts."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_asyncio import client, config

from snapshot_engine.wire.spec import GROUP, PLURAL, VERSION
from streamingjob_operator.no_answer import NO_ANSWER, describe_no_answer

FIELD_MANAGER = "streamingjob-operator"
TIMEOUT_SECONDS = 10.0

Body = dict[str, Any]
OnCall = Callable[[str, str, int], None]
"""Told of every request: its verb, its resource, and the answer's code."""


@dataclass(frozen=True)
class Kind:
    prefix: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        scope = f"/namespaces/{namespace}" if namespace is not None else ""
        parts = [part for part in (name, subresource) if part is not None]
        return "/".join([f"{self.prefix}{scope}/{self.plural}", *parts])


PODS = Kind("/api/v1", "pods")
NODES = Kind("/api/v1", "nodes")
SERVICES = Kind("/api/v1", "services")
CONFIG_MAPS = Kind("/api/v1", "configmaps")
SECRETS = Kind("/api/v1", "secrets")
SERVICE_ACCOUNTS = Kind("/api/v1", "serviceaccounts")
EVENTS = Kind("/api/v1", "events")
ROLES = Kind("/apis/rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Kind("/apis/rbac.authorization.k8s.io/v1", "rolebindings")
LEASES = Kind("/apis/coordination.k8s.io/v1", "leases")
STREAMING_JOBS = Kind(f"/apis/{GROUP}/{VERSION}", PLURAL)


# Unless it is asked to refuse them, the API server drops fields that it does not know, and says nothing of a misspelt
# one. What runs already is made again as it is: only a dry run is as strict.
_DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}

_WEBHOOK_IS_DOWN = "failed calling webhook"
_SAID_BY_ADMISSION = ("admission webhook", "ValidatingAdmissionPolicy")


class ApiError(Exception):
    """What was asked of the API server was not done, or nobody knows whether it was."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_refusal(self) -> bool:
        """The API server has understood and said no: it was certainly not done."""
        return self.status in (400, 401, 403, 404, 422, 429) or _WEBHOOK_IS_DOWN in self.message

    @property
    def blames_the_object(self) -> bool:
        """The object itself is wrong, wherever and whenever it is sent.

        Any other refusal is by the surroundings: rights, quotas, policies, webhooks, or something that is
        missing. Those can change with nobody touching the object, so it is worth asking again.
        """
        by_admission = any(words in self.message for words in (_WEBHOOK_IS_DOWN, *_SAID_BY_ADMISSION))
        return self.status in (400, 422) and not by_admission


class NoAnswerError(ApiError):
    """The API server did not answer: whether it did what was asked is not known."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(0, "NoAnswer", f"the API server did not answer: {describe_no_answer(error)}")


class Kube:
    def __init__(self, api: Any, on_call: OnCall | None = None) -> None:
        self._api = api
        self._on_call = on_call

    @classmethod
    async def connect(cls, on_call: OnCall | None = None) -> "Kube":
        """With the service account inside a cluster, or with the kubeconfig outside."""
        try:
            config.load_incluster_config()  # type: ignore[no-untyped-call]
        except config.ConfigException:
            await config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))
        return cls(client.ApiClient(), on_call)

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        try:
            return await self._call("GET", kind, kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None, *, labels: str | None = None, fields: str | None = None
    ) -> list[Body]:
        query = {"labelSelector": labels, "fieldSelector": fields}
        items: list[Body] = (await self._call("GET", kind, kind.path(namespace), query=query, verb="LIST"))["items"]
        return items

    async def create(self, kind: Kind, body: Body, *, dry_run: bool = False) -> Body:
        path = kind.path(body["metadata"].get("namespace"))
        query = {"fieldManager": FIELD_MANAGER, **(_DRY_RUN if dry_run else {})}
        return await self._call("POST", kind, path, query=query, body=body)

    async def apply(self, kind: Kind, body: Body) -> Body:
        """Server-side apply: makes it, or brings it to what is given; what others added stays."""
        path = kind.path(body["metadata"]["namespace"], body["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._call("PATCH", kind, path, query=query, body=body, content="application/apply-patch+yaml")

    async def replace(self, kind: Kind, body: Body, subresource: str | None = None) -> Body:
        """Fails with 409 if the object has changed since the resourceVersion in the body."""
        metadata = body["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"], subresource)
        return await self._call("PUT", kind, path, query={"fieldManager": FIELD_MANAGER}, body=body)

    async def merge_patch(self, kind: Kind, namespace: str, name: str, body: Body) -> Body:
        path = kind.path(namespace, name)
        query = {"fieldManager": FIELD_MANAGER}
        return await self._call("PATCH", kind, path, query=query, body=body, content="application/merge-patch+json")

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str | None = None, grace: int | None = None
    ) -> None:
        """Deletes that very object if a uid is given; one that is gone, or another by now, is not an error."""
        body: Body = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._call("DELETE", kind, kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def pod_log(self, namespace: str, name: str, *, container: str, lines: int) -> str:
        query = {"tailLines": str(lines), "container": container}
        return await self._request("GET", PODS, PODS.path(namespace, name, "log"), query=query)

    async def _call(
        self,
        method: str,
        kind: Kind,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Body | None = None,
        content: str = "application/json",
        verb: str | None = None,
    ) -> Body:
        text = await self._request(method, kind, path, query=query, body=body, content=content, verb=verb)
        try:
            answer: Body = json.loads(text) if text else {}
        except ValueError as error:  # something in between has answered instead
            raise NoAnswerError(error) from error
        return answer

    async def _request(
        self,
        method: str,
        kind: Kind,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Body | None = None,
        content: str = "application/json",
        verb: str | None = None,
    ) -> str:
        headers = {"Accept": "application/json, */*", "Content-Type": content}
        parameters = [(key, value) for key, value in (query or {}).items() if value is not None]
        try:
            await self._api.update_params_for_auth(headers, parameters, ["BearerToken"])
            response = await self._api.rest_client.request(
                method,
                self._api.configuration.host + path,
                query_params=parameters,
                headers=headers,
                body=body,
                _preload_content=False,
                _request_timeout=TIMEOUT_SECONDS,
            )
            async with response:
                text: str = await response.text()
        except NO_ANSWER as error:
            raise NoAnswerError(error) from error
        if self._on_call is not None:
            self._on_call(verb or method, kind.plural, response.status)
        if response.status >= 400:
            raise _error(response.status, text)
        return text


def _error(status: int, text: str) -> ApiError:
    try:
        answer = json.loads(text)
        return ApiError(status, answer.get("reason", ""), answer.get("message", text))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:500])
