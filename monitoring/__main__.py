"""Writes the dashboards and the alert rules into the chart, and the tables into docs/metrics.md."""

from __future__ import annotations

from pathlib import Path

import yaml

from monitoring import reference
from monitoring.alerts import rule_file
from monitoring.dashboards import as_json
from monitoring.fleet_dashboard import fleet_dashboard
from monitoring.job_dashboard import job_dashboard

ROOT = Path(__file__).parent.parent
FILES = ROOT / "charts/streamingjob-operator/files"
HEADER = "# Made by `make generate` from monitoring/alerts.py.\n"


def generated() -> dict[Path, str]:
    """Every generated file and its content."""
    page = ROOT / "docs/metrics.md"
    return {
        FILES / "dashboards/streamingjob.json": as_json(job_dashboard()),
        FILES / "dashboards/streamingjob-fleet.json": as_json(fleet_dashboard()),
        FILES / "alerts.yaml": HEADER + yaml.safe_dump(rule_file(), sort_keys=False, width=1000),
        page: reference.filled_in(page.read_text()),
    }


if __name__ == "__main__":
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
