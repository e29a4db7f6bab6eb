"""The alert rules: valid, tested one by one with promtool, and each with its runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from monitoring.shipped import ROOT, RULES, alerts, dashboards

from snapshot_engine.runtime.region_metrics import CAUSES

HERE = Path(__file__).parent
TESTS = HERE / "alert_tests.yaml"


def test_promtool_finds_the_rules_valid(promtool: Path) -> None:
    checked = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_fires_when_it_should_and_only_then(promtool: Path) -> None:
    tested = subprocess.run([promtool, "test", "rules", TESTS.name], cwd=HERE, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_no_alert_is_untested() -> None:
    text = TESTS.read_text()
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in text] == []


def test_every_alert_links_to_its_paragraph_in_the_runbooks() -> None:
    page = (ROOT / "docs/runbooks.md").read_text()
    paragraphs = dict(re.findall(r"^## (\w+)\n\n(.+?)(?=\n## |\Z)", page, re.M | re.S))
    assert paragraphs.keys() == {rule["alert"] for rule in alerts()}
    for rule in alerts():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert len(paragraphs[rule["alert"]]) > 200


def schema_has(schema: dict[str, Any], path: str) -> bool:
    for name in path.replace("[]", "").split("."):
        schema = schema.get("items", schema).get("properties", {}).get(name)
        if schema is None:
            return False
    return True


def test_runbooks_name_fields_and_panels_that_there_are() -> None:
    page = (ROOT / "docs/runbooks.md").read_text()
    crd = yaml.safe_load((ROOT / "crds/streamingjobs.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = re.findall(r"`((?:[a-z]\w*(?:\[\])?\.)+\w+|restartNonce)(?::[^`]*)?`", page)
    assert len(fields) > 12
    unknown = [f for f in fields if not schema_has(schema, f) and not schema_has(schema, f"spec.{f}")]
    assert unknown == []
    titles = {panel["title"] for board in dashboards().values() for panel in board["panels"]}
    quoted = re.findall(r'(?<!=)"([^"]+)"', page)
    assert len(quoted) > 4
    assert [title for title in quoted if title.replace("\n", " ") not in titles] == []


def test_runbooks_explain_every_cause_of_a_restart() -> None:
    page = (ROOT / "docs/runbooks.md").read_text()
    assert [cause for cause in CAUSES if cause not in page] == []
