"""A watched namespace that is gone, and its Role with it, ends the care for no other; and a CRD may come late."""

import asyncio
import contextlib
import logging
import socket

import aiohttp
import pytest
import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry

from snapshot_engine.wire.spec import GROUP, VERSION
from streamingjob_operator import controller as controllers
from streamingjob_operator import watched_namespaces
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.controller import RESYNC_SECONDS, Controller
from streamingjob_operator.handlers import REFUSAL_PAUSES_SECONDS
from streamingjob_operator.kube import PODS, STREAMING_JOBS, ApiError, NoAnswerError
from streamingjob_operator.main import run_operator
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.watched_namespaces import NotWatchedError, WatchedNamespaces

FORBIDDEN = ApiError(403, "Forbidden", "no Role there")
NOT_FOUND = ApiError(404, "NotFound", "there is no such thing")


class Lists:
    """An API server that can only list, and answers in each namespace what a test says."""

    def __init__(self, **answers):
        self.answers = answers
        """By namespace: the jobs there, or the error."""

    async def list(self, kind, namespace, *, labels=None, fields=None):
        answer = self.answers[namespace or "everywhere"]
        if isinstance(answer, Exception):
            raise answer
        return list(answer) if kind is STREAMING_JOBS else []


def job(uid, namespace):
    metadata = {"uid": uid, "name": f"orders-{uid}", "namespace": namespace, "resourceVersion": "1"}
    return {"metadata": metadata}


def controller_of(lists, registry=None):
    config = OperatorConfig(image="engine:1", namespaces=tuple(lists.answers))
    return Controller(lists, None, config, OperatorMetrics(registry or CollectorRegistry()))


def said_by_us(caplog):
    return [each.getMessage() for each in caplog.records if each.name.startswith("streamingjob_operator")]


def watched(lists, registry=None):
    wanted = tuple(each for each in lists.answers if each != "everywhere")
    return WatchedNamespaces(lists, wanted, OperatorMetrics(registry or CollectorRegistry()))


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(watched_namespaces, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(controllers, "RESYNC_SECONDS", 0.1)


@pytest.mark.parametrize("refusal", [FORBIDDEN, NOT_FOUND])
async def test_a_namespace_that_refuses_is_left_out_from_the_start_and_told(refusal, caplog):
    registry = CollectorRegistry()
    namespaces = watched(Lists(a=[], b=refusal), registry)
    await namespaces.until_one_answers()
    assert namespaces.answering == ("a",)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "namespace b" in warning and str(refusal) in warning
    assert registry.get_sample_value("streamingjob_operator_namespaces_left_out") == 1


async def test_where_all_are_refused_one_is_waited_for_and_that_is_said_once(short_pauses, caplog):
    lists = Lists(a=FORBIDDEN, b=FORBIDDEN)
    namespaces = watched(lists)
    waiting = asyncio.create_task(namespaces.until_one_answers())
    await until(lambda: len(said_by_us(caplog)) >= 2)
    await asyncio.sleep(0.1)
    assert not waiting.done() and len(said_by_us(caplog)) == 2
    lists.answers["b"] = []
    await asyncio.wait_for(waiting, 5)
    assert namespaces.answering == ("b",)


async def test_no_answer_is_no_refusal_and_is_asked_for_again(short_pauses):
    lists = Lists(a=[], b=NoAnswerError(TimeoutError()))
    namespaces = watched(lists)
    waiting = asyncio.create_task(namespaces.until_one_answers())
    await asyncio.sleep(0.05)
    lists.answers["b"] = []
    await asyncio.wait_for(waiting, 5)
    assert namespaces.answering == ("a", "b")


@pytest.mark.parametrize("where", [["everywhere"], ["a", "b"]])
async def test_a_crd_that_is_not_there_is_waited_for_and_that_is_said_once(where, short_pauses, caplog):
    lists = Lists(**dict.fromkeys(where, NOT_FOUND))
    namespaces = watched(lists)
    waiting = asyncio.create_task(namespaces.until_one_answers())
    await until(lambda: said_by_us(caplog))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    (said,) = said_by_us(caplog)
    assert "crds/streamingjobs.yaml" in said and all(each in said for each in where if each != "everywhere")
    lists.answers = {each: [] for each in where}
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("error", [FORBIDDEN, NOT_FOUND, NoAnswerError(TimeoutError())])
async def test_what_one_namespace_answers_hides_nothing_in_the_others(error):
    lists = Lists(a=error, b=[job("new", "b")])
    controller = controller_of(lists)
    controller.store.put_job(job("old", "b"))
    await controller.resync()
    assert set(controller.store.jobs) == {"new"}


async def test_jobs_of_a_namespace_that_does_not_answer_are_not_forgotten():
    lists = Lists(a=[], b=NoAnswerError(TimeoutError()))
    controller = controller_of(lists)
    controller.store.put_job(job("u", "b"))
    for _ in range(3):
        await controller.resync()
    assert set(controller.store.jobs) == {"u"} and controller.namespaces.answering == ("a", "b")


async def test_jobs_of_a_namespace_that_refuses_are_forgotten_when_it_does_so_twice():
    """An API server that has just started may refuse for a moment."""
    lists = Lists(a=[], b=FORBIDDEN)
    controller = controller_of(lists)
    controller.store.put_job(job("u", "b"))
    await controller.resync()
    assert set(controller.store.jobs) == {"u"}
    await controller.resync()
    assert controller.store.jobs == {}


async def test_pods_seen_before_their_job_stay_while_a_namespace_does_not_answer():
    controller = controller_of(Lists(a=[], b=NoAnswerError(TimeoutError())))
    controller.store.pod_events["u"] += 1
    await controller.resync()
    assert controller.store.jobs_of_pods() == {"u"}


async def test_a_namespace_that_has_come_back_is_taken_up_again_and_that_is_said(caplog):
    caplog.set_level(logging.INFO)
    registry = CollectorRegistry()
    lists = Lists(a=[], b=FORBIDDEN)
    controller = controller_of(lists, registry)
    await controller.resync()
    assert controller.namespaces.insights.namespaces == {"a"}
    lists.answers["b"] = [job("u", "b")]
    await controller.resync()
    assert controller.namespaces.insights.namespaces == {"a", "b"} and set(controller.store.jobs) == {"u"}
    assert "in namespace b" in caplog.messages[-1]
    assert registry.get_sample_value("streamingjob_operator_namespaces_left_out") == 0


def test_kopf_is_told_what_to_leave_out_before_a_refusal_ends_it():
    assert sum(REFUSAL_PAUSES_SECONDS) > 1.5 * RESYNC_SECONDS


class ApiServer:
    """What kopf asks of one: it lists nothing, and keeps every watch open until it is told to end it."""

    def __init__(self):
        self.forbidden = set()
        self.watches = []
        """The namespaces of all watches of StreamingJobs that were asked for, and maybe refused."""
        self.has_crd = True
        self.groups = [GROUP, "apiextensions.k8s.io"]
        """What it says that it has, which follows a new CRD by a moment."""
        self._cut = asyncio.Event()

    def cut_watches(self):
        self._cut.set()
        self._cut = asyncio.Event()

    async def answer(self, request):
        _, *where = request.path.split("/")
        if where[-1] == "api":
            return web.json_response({"versions": ["v1"]})
        if where[-1] == "apis":
            return web.json_response({"groups": [_group(name) for name in self.groups]})
        if "namespaces" not in where and where[-1] in ("v1", VERSION):
            return web.json_response({"resources": _KINDS.get("/".join(where), [])})
        return await self._objects(request, where)

    async def _objects(self, request, where):
        namespace = where[where.index("namespaces") + 1] if "namespaces" in where else None
        if where[1] == GROUP and not self.has_crd:
            return web.json_response({"message": "no such kind", "code": 404}, status=404)
        if request.query.get("watch") and where[-1] == STREAMING_JOBS.plural:
            self.watches.append(namespace)
        if namespace in self.forbidden:
            return web.json_response({"message": f"no Role in {namespace}", "code": 403}, status=403)
        if not request.query.get("watch"):
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        stream = web.StreamResponse()
        await stream.prepare(request)
        await self._cut.wait()
        return stream


def _group(name):
    version = {"version": VERSION if name == GROUP else "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _kinds(*plurals):
    verbs = ["get", "list", "watch", "patch"]
    return [
        {"name": plural, "singularName": plural[:-1], "kind": plural.title(), "namespaced": True, "verbs": verbs}
        for plural in plurals
    ]


_KINDS = {
    "api/v1": _kinds(PODS.plural, "namespaces", "events"),
    f"apis/{GROUP}/{VERSION}": _kinds(STREAMING_JOBS.plural),
    "apis/apiextensions.k8s.io/v1": _kinds("customresourcedefinitions"),
}


@pytest.fixture
async def api_server(tmp_path, monkeypatch):
    server = ApiServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield server
    server.cut_watches()
    await runner.cleanup()


@contextlib.asynccontextmanager
async def running(*namespaces, port=0):
    config = OperatorConfig(image="i", namespaces=namespaces, watch_nodes=False)
    operator = asyncio.create_task(run_operator(config, port, None))
    try:
        yield operator
    finally:
        operator.cancel()
        await asyncio.wait({operator})


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def taken_up_again(api_server):
    """The namespaces that are watched anew when all watches are cut."""
    before = len(api_server.watches)
    api_server.cut_watches()
    await until(lambda: len(api_server.watches) > before)
    await asyncio.sleep(0.3)
    return api_server.watches[before:]


async def test_the_operator_watches_what_answers_while_a_namespace_goes_and_comes(api_server, short_pauses, caplog):
    caplog.set_level(logging.INFO)
    api_server.forbidden = {"b"}
    async with running("a", "b") as operator:
        await until(lambda: api_server.watches == ["a"])
        api_server.forbidden = set()
        await until(lambda: api_server.watches == ["a", "b"])
        api_server.forbidden = {"b"}
        await until(lambda: len([said for said in caplog.messages if "namespace b is left out" in said]) == 2)
        async with asyncio.timeout(20):
            while await taken_up_again(api_server) != ["a"]:
                pass  # what watches b is told to end, and may try once more before it does
        assert not operator.done()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def health(port):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
        return answer.status


async def test_a_crd_that_comes_after_the_operator_is_watched(api_server, short_pauses, caplog):
    known, api_server.groups, api_server.has_crd = api_server.groups, api_server.groups[1:], False
    port = free_port()
    async with running(port=port) as operator:
        await until(lambda: any("crds/streamingjobs.yaml" in said for said in caplog.messages))
        assert await health(port) == 200
        await asyncio.sleep(0.3)  # a resync or two
        assert len(said_by_us(caplog)) == 1
        api_server.groups, api_server.has_crd = known, True
        await until(lambda: api_server.watches == [None])
        assert not operator.done()


async def test_the_operator_does_not_go_on_without_watching_jobs(api_server, short_pauses):
    """Of several API servers, one may have answered that knows the CRD, and then one that does not yet."""
    api_server.groups = api_server.groups[1:]
    async with running() as operator:
        await asyncio.wait({operator}, timeout=20)
        with pytest.raises(ExceptionGroup) as raised:
            operator.result()
    assert raised.group_contains(NotWatchedError, match="starts again")
