"""Pipelines that would stand still before a blocking result is whole."""

from __future__ import annotations

import pytest

from snapshot_engine.graph.blocking_checks import check_blocking_results
from snapshot_engine.graph.execution import ExecutionGraph


def found(graph) -> list[tuple[str, bool]]:
    return [(str(problem), is_error) for problem, is_error in check_blocking_results(ExecutionGraph(graph))]


@pytest.mark.parametrize("exchange", ["durable", "memory"])
def test_a_log_into_a_consumer_that_waits_for_what_its_own_producer_makes_is_refused(graph_of, exchange):
    graph = graph_of({"p": 2, "a": 2, "c": 1}, [f"p hash a {exchange}", "a hash c blocking", f"p hash c {exchange}"])
    ((problem, is_error),) = [each for each in found(graph) if each[1]]
    assert is_error
    assert f"the {exchange} exchange 'p' -> 'c' is read only when the blocking result 'a' -> 'c' is whole" in problem


@pytest.mark.parametrize("exchange", ["durable", "memory"])
def test_a_log_and_a_blocking_result_from_one_producer_to_one_consumer_are_refused(graph_of, exchange):
    graph = graph_of(
        {"p": 1, "a": 1, "b": 1, "c": 1},
        [
            "p hash a",
            f"a hash c {exchange}",
            "p hash b",
            "b hash c blocking",
        ],
    )
    ((problem, is_error),) = found(graph)
    assert is_error and f"the {exchange} exchange 'a' -> 'c'" in problem


def test_sources_further_up_that_a_full_log_pauses_count(graph_of):
    graph = graph_of(
        {"p": 1, "a": 1, "b": 1, "c": 1},
        ["p hash a memory", "a hash c memory", "p hash b memory", "b hash c blocking"],
    )
    ((problem, is_error),) = found(graph)
    assert is_error and "the memory exchange 'a' -> 'c'" in problem


def test_a_committed_exchange_before_a_blocking_result_is_refused(graph_of):
    graph = graph_of({"p": 1, "a": 1, "c": 1}, ["p hash a committed", "a hash c blocking"])
    ((problem, is_error),) = found(graph)
    assert is_error and "the committed exchange 'p' -> 'a' shows its rows with the next checkpoint" in problem


def test_a_durable_log_that_nothing_empties_before_a_blocking_result_is_whole_is_told(graph_of):
    graph = graph_of({"p": 1, "a": 1, "c": 1}, ["p hash a durable", "a hash c blocking"])
    ((problem, is_error),) = found(graph)
    assert not is_error
    assert "the durable exchange 'p' -> 'a' keeps all its rows until the blocking result 'a' -> 'c' is whole" in problem


@pytest.mark.parametrize(
    "edges",
    [
        ["live hash c durable", "table hash c blocking"],
        ["live hash c committed", "table hash c blocking"],
        ["table hash c blocking", "c hash d durable", "live hash d committed"],
        ["table hash c memory", "c hash d blocking", "live hash d durable"],
        ["table hash c blocking", "table hash d committed", "live hash d durable"],
        ["table hash c durable", "live hash d committed"],
    ],
)
def test_what_comes_to_its_end_is_planned(graph_of, edges):
    names = {word for edge in edges for word in (edge.split()[0], edge.split()[2])}
    assert found(graph_of(dict.fromkeys(sorted(names), 2), edges)) == []
