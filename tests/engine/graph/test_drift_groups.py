"""Which sources keep together in event time, and where that cannot be."""

from __future__ import annotations

from snapshot_engine.graph.drift_groups import DriftGroup
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.plan_text import plan_as_text
from snapshot_engine.graph.plan_view import view_of


def same(row):
    return row


def timed(env, source, uid, drift=None):
    return env.from_source(source, name=uid, uid=uid).with_watermark("ts", max_drift=drift)


def groups(graph):
    return ExecutionGraph(graph).drift_groups


def test_sources_whose_rows_meet_keep_together_by_the_smallest_drift(plan, rows, discard):
    def pipeline(env):
        left, right = timed(env, rows(), "left", "10s"), timed(env, rows(), "right", "3s")
        left.union(right, timed(env, rows(), "free")).sink_to(discard(), uid="out")
        timed(env, rows(), "other", "7s").sink_to(discard(), uid="elsewhere")

    found = groups(plan(pipeline))
    assert sorted(found, key=lambda group: group.drift_ms) == [
        DriftGroup(frozenset({"left", "right"}), 3000),
        DriftGroup(frozenset({"other"}), 7000),
    ]


def test_without_a_drift_there_are_no_groups(plan, rows, discard):
    assert groups(plan(lambda env: timed(env, rows(), "in").sink_to(discard(), uid="out"))) == []


def test_the_plan_says_how_far_a_source_may_be_ahead(plan, rows, discard):
    graph = plan(lambda env: timed(env, rows(), "in", "1m30s").sink_to(discard(), uid="out"))
    assert "in ×1 (source, at most 90s ahead of the slowest)" in plan_as_text(view_of(graph))


def test_a_drift_away_from_its_source_is_refused(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), uid="in").rebalance().with_watermark("ts", max_drift="1s").parallelism(3)
        stream.sink_to(discard(), uid="out")

    (problem,) = problems(pipeline, parallelism=2)
    assert "not in one chain with a source" in problem and "test_drift_groups.py" in problem


def test_a_second_drift_of_one_source_is_refused(problems, rows, discard):
    def pipeline(env):
        timed(env, rows(), "in", "1s").with_watermark("amount", max_drift="2s").sink_to(discard(), uid="out")

    (problem,) = problems(pipeline)
    assert "has declared a max_drift for this source already" in problem


def test_a_source_of_a_blocking_result_must_not_wait_for_others(problems, rows, discard):
    def pipeline(env):
        timed(env, rows(bounded=True), "in", "1s").exchange("blocking").key_by("city").map_in_arrow(same).sink_to(
            discard(), uid="out"
        )

    assert any("wait for the blocking result that it feeds" in problem for problem in problems(pipeline))


def test_a_drift_of_nothing_is_refused(problems, rows, discard):
    (problem,) = problems(lambda env: timed(env, rows(), "in", "0s").sink_to(discard(), uid="out"))
    assert "max_drift" in problem


def test_a_watermark_of_a_source_with_another_consumer_is_warned_of(plan, rows, transactional):
    def pipeline(env):
        source = env.from_source(rows(), name="orders", uid="orders")
        source.with_watermark("ts").uid("first").sink_to(transactional(), uid="out")
        source.with_watermark("ts").uid("second").sink_to(transactional(), uid="other")

    warnings = plan(pipeline, parallelism=2).warnings
    assert len(warnings) == 2
    assert all("'orders' has another consumer" in each and "test_drift_groups.py:" in each for each in warnings)
    assert all("no watermark of their own" in each and "branch behind it" in each for each in warnings)


def test_a_stream_that_branches_behind_its_watermark_is_not_warned_of(plan, rows, transactional):
    def pipeline(env):
        stream = env.from_source(rows(), uid="orders").map_in_arrow(same).uid("same").with_watermark("ts")
        stream.sink_to(transactional(), uid="out")
        stream.key_by("city").map_in_arrow(same).uid("again").with_watermark("amount").sink_to(
            transactional(), uid="other"
        )

    assert plan(pipeline, parallelism=2).warnings == (), "what has event time may be given another one"


def test_a_watermark_with_another_parallelism_than_its_source_is_warned_of(plan, rows, transactional):
    def pipeline(env):
        source = env.from_source(rows(), name="orders", uid="orders").parallelism(1)
        source.with_watermark("ts").sink_to(transactional(), uid="out")

    (warning,) = plan(pipeline, parallelism=2).warnings
    assert "'orders' has another parallelism" in warning and "right behind the source" in warning


def test_a_watermark_behind_an_exchange_is_warned_of(plan, rows, transactional):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="orders").key_by("city").map_in_arrow(same).uid("same")
        stream.with_watermark("ts").sink_to(transactional(), uid="out")

    (warning,) = plan(pipeline, parallelism=2).warnings
    assert "'orders' is behind an exchange" in warning
