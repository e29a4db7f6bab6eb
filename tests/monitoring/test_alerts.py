"""The alert rules: valid, tested one by one with promtool, and each with its runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from monitoring.shipped import ROOT, RULES, alerts

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
