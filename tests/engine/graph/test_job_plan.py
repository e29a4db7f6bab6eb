"""From a manifest to a job graph."""

from __future__ import annotations

import sys

import pytest

from snapshot_engine.api import Environment, Exchange
from snapshot_engine.graph.job_plan import plan, plan_pipeline
from snapshot_engine.graph.problems import PlanError
from snapshot_engine.wire.spec import StreamingJob

SOURCE = """
import pyarrow as pa
from snapshot_engine.connectors.protocols import DirectSink

class Rows:
    bounded = False
    schema = pa.schema({"city": pa.string(), "amount": pa.int64()})
    def splits(self, parallelism): return ["0"]
    def open(self, split, position): ...

class Discard(DirectSink):
    def open(self, context): ...

def good(batch):
    return batch

def pipeline(env):
    stream = env.from_source(Rows(), name="orders", uid="orders")
    stream.key_by("city").map_in_arrow(good).sink_to(Discard(), uid="out")
"""


@pytest.fixture(autouse=True)
def forget_the_modules_of_jobs(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("inline_pipeline", "late_shop", "late_helpers"):
        sys.modules.pop(name, None)


def manifest(source=SOURCE, args=None, **spec):
    pipeline = {"source": source, "args": args or {}}
    return StreamingJob.model_validate({"metadata": {"name": "shop"}, "spec": {"pipeline": pipeline, **spec}})


def test_a_manifest_is_planned_with_its_parallelism_and_name():
    graph = plan(manifest(parallelism=3))
    assert graph.name == "shop" and graph.key_groups == 128
    assert [vertex.parallelism for vertex in graph.vertices.values()] == [3, 3]
    assert graph.options["local_modules"] == ("inline_pipeline",)


LATE_IMPORT = """
def pipeline(env):
    from late_helpers import helper

    env.from_source(Rows(), uid="orders").map(helper).sink_to(Discard(), uid="out")
"""


def importing_when_called(folder, helpers):
    """A manifest whose pipeline function imports a module beside it only when it is called."""
    (folder / "late_helpers.py").write_text(helpers)
    (folder / "late_shop.py").write_text(SOURCE.partition("def pipeline")[0] + LATE_IMPORT)
    spec = {"pipeline": {"entrypoint": "late_shop.py:pipeline"}}
    return StreamingJob.model_validate({"metadata": {"name": "shop"}, "spec": spec})


def test_a_module_that_the_function_imports_when_it_is_called_is_shipped(tmp_path):
    job = importing_when_called(tmp_path, "def helper(row):\n    return row\n")
    assert set(plan(job, folder=tmp_path).options["local_modules"]) == {"late_shop", "late_helpers"}


def test_what_cannot_be_sent_is_found_in_such_a_module_too(tmp_path):
    helpers = "import threading\nLOCK = threading.Lock()\ndef helper(row):\n    with LOCK:\n        return row\n"
    job = importing_when_called(tmp_path, helpers)
    with pytest.raises(PlanError, match=r"(?s)late_shop.py:\d+.*it cannot be sent to the executors.*lock"):
        plan(job, folder=tmp_path)


def test_the_mode_and_strategy_of_the_manifest_are_checked():
    assert plan(manifest(checkpoint={"mode": "AtLeastOnce"})).warnings == ()
    with pytest.raises(PlanError, match="strategy Individual"):
        plan(manifest(parallelism=2, recovery={"strategy": "Individual"}))


def test_strict_makes_sinks_that_are_not_exactly_once_an_error():
    assert len(plan(manifest()).warnings) == 1
    with pytest.raises(PlanError, match="ExactlyOnce, but this sink is not"):
        plan(manifest(), strict=True)


def test_locations_name_the_inline_source():
    graph = plan(manifest())
    operator = graph.vertices["orders"].operators[0]
    assert operator.location.file == "<pipeline.source>"
    assert SOURCE.splitlines()[operator.location.line - 1].strip().startswith("stream = env.from_source")


def test_the_environment_has_the_last_word_on_the_defaults(rows, discard):
    def pipeline(env):
        env.parallelism = 4
        env.key_groups = 64
        env.exchange = Exchange.COMMITTED
        env.from_source(rows(), uid="in").key_by("city").map_in_arrow(len).sink_to(discard())

    graph = plan_pipeline(pipeline, parallelism=2)
    assert graph.key_groups == 64 and graph.edges[0].exchange is Exchange.COMMITTED
    assert {vertex.parallelism for vertex in graph.vertices.values()} == {4}


def test_args_go_to_the_parameters_of_their_names(rows, discard):
    given = {}

    def pipeline(env: Environment, city, limit=10):
        given.update(city=city, limit=limit, args=dict(env.args))
        env.from_source(rows(), uid="in").sink_to(discard())

    plan_pipeline(pipeline, {"city": "Berlin"})
    assert given == {"city": "Berlin", "limit": 10, "args": {"city": "Berlin"}}


def test_a_function_of_the_environment_alone_finds_them_there(rows, discard):
    seen = []

    def pipeline(env):
        seen.append(env.args["city"])
        env.from_source(rows(), uid="in").sink_to(discard())

    plan_pipeline(pipeline, {"city": "Berlin"})
    assert seen == ["Berlin"]


def test_args_that_fit_no_parameter_are_refused():
    def pipeline(env, city): ...

    with pytest.raises(PlanError, match=r"pipeline.args has ciyt, but it takes city") as caught:
        plan_pipeline(pipeline, {"ciyt": 1})
    assert "test_job_plan.py" in str(caught.value)


def test_a_missing_argument_is_named():
    def pipeline(env, city, limit): ...

    with pytest.raises(PlanError, match=r"it needs pipeline.args.limit"):
        plan_pipeline(pipeline, {"city": 1})


def test_a_function_without_parameters_is_told_what_it_is_given():
    def pipeline(): ...

    with pytest.raises(PlanError, match="it takes no argument, but is given the environment"):
        plan_pipeline(pipeline)


def test_a_generator_is_no_pipeline():
    def pipeline(env):
        yield env

    with pytest.raises(PlanError, match="plain function: no yield, no async"):
        plan_pipeline(pipeline)


def test_a_pipeline_that_raises_shows_the_users_frames_and_what_was_found_before():
    source = SOURCE.replace(
        'stream.key_by("city")', 'stream.key_by("ctiy")\n    lookup()["missing"]\n    stream.key_by("city")'
    )
    source += "\ndef lookup():\n    return {}\n"
    with pytest.raises(PlanError) as caught:
        plan(manifest(source))
    text = str(caught.value)
    assert "did you mean 'city'?" in text
    assert "the pipeline raised while it was planned: KeyError: 'missing'" in text
    assert 'lookup()["missing"]' in text and "<pipeline.source>" in text
    assert "job_plan.py" not in text
