"""What the chart ships: the dashboards' queries and the alert rules, read back from the generated files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
FILES = ROOT / "charts/streamingjob-operator/files"
RULES = FILES / "alerts.yaml"


def alerts() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return rules


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted((FILES / "dashboards").glob("*.json"))}


def panel_queries(dashboard: Mapping[str, Any]) -> dict[str, list[str]]:
    """The queries of each panel, by its title."""
    return {p["title"]: [target["expr"] for target in p["targets"]] for p in dashboard["panels"] if p.get("targets")}


def annotation_queries(dashboard: Mapping[str, Any]) -> dict[str, str]:
    return {a["name"]: a["expr"] for a in dashboard["annotations"]["list"] if "expr" in a}


def metrics_in(expr: str) -> set[str]:
    found = re.findall(r"\bstreamingjob_[a-z_]+\b(?=[{\[) ]|$)", expr)
    return set(found) - {"streamingjob_namespace"}  # a label


def showing_every_comparison(expr: str) -> str:
    """An alert's expression that answers 0 or 1 where the alert is silent or not: nothing, if its sides never meet."""
    return re.sub(r" (>|<|==) ", r" \1 bool ", expr)
