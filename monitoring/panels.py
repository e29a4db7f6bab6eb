"""The few shapes of panel that the dashboards are made of, laid out on Grafana's grid of 24 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models.common import GraphDrawStyle, LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
GRID_WIDTH = 24
STAT_HEIGHT = 4
GRAPH_HEIGHT = 8


@dataclass(frozen=True)
class Panel:
    """What is shown: queries with their legends, and in which unit."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    help: str = ""
    stacked: bool = False
    width: int = 8


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]
    stats: bool = False
    """Single figures in place of graphs."""


def add_rows(board: dashboard.Dashboard, rows: Sequence[Row]) -> None:
    top = 0
    for row in rows:
        board.with_row(dashboard.Row(row.title).grid_pos(GridPos(h=1, w=GRID_WIDTH, x=0, y=top)))
        top = _add_panels(board, row, top + 1)


def _add_panels(board: dashboard.Dashboard, row: Row, top: int) -> int:
    """Returns where the next row begins."""
    height = STAT_HEIGHT if row.stats else GRAPH_HEIGHT
    left = 0
    for panel in row.panels:
        if left + panel.width > GRID_WIDTH:
            left, top = 0, top + height
        place = GridPos(h=height, w=panel.width, x=left, y=top)
        board.with_panel((_stat(panel) if row.stats else _graph(panel)).grid_pos(place))
        left += panel.width
    return top + height


def _graph(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.help)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .min(0)
        .fill_opacity(60 if panel.stacked else 8)
        .draw_style(GraphDrawStyle.LINE)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
    )
    if panel.stacked:
        built.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for number, (expr, legend) in enumerate(panel.queries):
        built.with_target(_query(expr, legend, number))
    return built


def _stat(panel: Panel) -> stat.Panel:
    built = stat.Panel().title(panel.title).description(panel.help).datasource(DATASOURCE).unit(panel.unit)
    built.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    for number, (expr, legend) in enumerate(panel.queries):
        built.with_target(_query(expr, legend, number))
    return built


def _query(expr: str, legend: str, number: int) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(chr(ord("A") + number))
