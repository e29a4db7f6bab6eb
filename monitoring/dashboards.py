"""What the dashboards share: their variables, their annotations, and how they are written down."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery, VariableRefresh, VariableSort

from monitoring.panels import DATASOURCE, Row, add_rows

TAG = "streamingjob"


def new_dashboard(title: str, uid: str, rows: Sequence[Row]) -> dashboard.Dashboard:
    board = (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags([TAG])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(1)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    add_rows(board, rows)
    return board


def choice(name: str, label: str, query: str, *, several: bool) -> dashboard.QueryVariable:
    """A variable with the values of a label."""
    built = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )
    return built.multi(True).include_all(True).all_value(".+") if several else built


class _TitledQuery(AnnotationQuery):
    """With the field by which the Prometheus data source words an annotation; the builders do not know it."""

    title = ""

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self.title}


class _TitledAnnotation(dashboard.AnnotationQuery):
    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def build(self) -> _TitledQuery:
        query = _TitledQuery(**vars(super().build()))
        query.title = self._title
        return query


def annotation(name: str, expr: str, title: str, colour: str, *, shown: bool = True) -> dashboard.AnnotationQuery:
    built = _TitledAnnotation(title).name(name).datasource(DATASOURCE).enable(shown)
    return built.icon_color(colour).expr(expr)


def as_json(board: dashboard.Dashboard) -> str:
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"
