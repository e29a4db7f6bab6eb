"""Dashboards and rules name only metrics that the code has, and the generated files are those of the code."""

from __future__ import annotations

import re

import pytest
from monitoring.shipped import ROOT, alerts, annotation_queries, dashboards, metrics_in, panel_queries

pytest.importorskip("grafana_foundation_sdk", reason="a development tool: make setup installs it")

from monitoring import reference
from monitoring.__main__ import generated
from monitoring.fleet_dashboard import OPERATOR

BOARDS = dashboards()


def metrics_used(expr: str) -> list[str]:
    """Every mention of a metric in a query."""
    return re.findall(r"\bstreamingjob_(?!namespace\b)[a-z_]+\b(?=[{\[) ]|$)", expr)


def names() -> set[str]:
    found = set()
    for registry in (reference.driver_registry(), reference.operator_registry()):
        for metric, _ in reference.families(registry):
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(metric.type, [""])
            found |= {metric.name + suffix for suffix in suffixes}
    return found


def test_what_is_generated_is_what_the_code_says() -> None:
    stale = [str(path.relative_to(ROOT)) for path, content in generated().items() if path.read_text() != content]
    assert stale == [], "run `make generate`"


@pytest.mark.parametrize("name", BOARDS)
def test_every_query_names_metrics_that_there_are(name: str) -> None:
    queries = [expr for exprs in panel_queries(BOARDS[name]).values() for expr in exprs]
    queries += annotation_queries(BOARDS[name]).values()
    assert queries
    assert {metric for expr in queries for metric in metrics_in(expr)} - names() == set()


def test_every_alert_names_metrics_that_there_are() -> None:
    assert {metric for rule in alerts() for metric in metrics_in(rule["expr"])} - names() == set()


def test_every_metric_of_the_driver_is_on_a_dashboard_or_in_an_alert() -> None:
    queries = [rule["expr"] for rule in alerts()]
    for board in BOARDS.values():
        queries += [expr for exprs in panel_queries(board).values() for expr in exprs]
    shown = {metric for expr in queries for metric in metrics_in(expr)}
    unseen = {
        metric.name
        for metric, _ in reference.families(reference.driver_registry())
        if not any(name.startswith(metric.name) for name in shown)
    }
    assert unseen == {"streamingjob_watermark_timestamp_seconds"}


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("name", BOARDS)
def test_boards_are_templated_by_namespace_and_have_annotations(name: str) -> None:
    variables = {variable["name"] for variable in BOARDS[name]["templating"]["list"]}
    assert {"datasource", "namespace"} <= variables
    assert len(annotation_queries(BOARDS[name])) >= 2
    assert all(each["titleFormat"] for each in BOARDS[name]["annotations"]["list"])


def test_every_query_about_jobs_is_filtered_by_the_boards_variables() -> None:
    about_the_operator = {panel.title for panel in OPERATOR.panels} | {"From a lost pod to running again"}
    for name, filters in {
        "streamingjob": ("$namespace", "$streamingjob"),
        "streamingjob-fleet": ("$namespace",),
    }.items():
        queries = {t: exprs for t, exprs in panel_queries(BOARDS[name]).items() if t not in about_the_operator}
        queries |= {title: [expr] for title, expr in annotation_queries(BOARDS[name]).items()}
        for title, exprs in queries.items():
            for expr in exprs:
                selectors = len(metrics_used(expr))
                assert [expr.count(variable) for variable in filters] == [selectors] * len(filters), (title, expr)
