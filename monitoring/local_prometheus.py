"""A real Prometheus on this machine, with the alert rules loaded and targets that are given by address."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from monitoring.shipped import RULES


class Prometheus:
    """A real Prometheus, asked over its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str) -> list[dict[str, Any]]:
        """What is there. That something is not a number is no answer."""
        return [sample for sample in self._get("query", query=expr)["result"] if sample["value"][1] != "NaN"]

    def targets_up(self) -> int:
        return sum(target["health"] == "up" for target in self._get("targets")["activeTargets"])

    def alerts(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **query: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"Prometheus refuses {query}: {error.read().decode()}") from error


class PrometheusServer(Prometheus):
    """Started with targets that are known by then."""

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__("")
        self._folder = folder
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Targets by address, each with its labels."""
        self._folder.mkdir(parents=True)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {
                    "job_name": "streamingjob",
                    "static_configs": [{"targets": [a], "labels": dict(labels)} for a, labels in targets.items()],
                }
            ],
        }
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        log = (self._folder / "log").open("wb")
        arguments = [
            str(self._program),
            f"--config.file={self._folder}/prometheus.yml",
            f"--storage.tsdb.path={self._folder}/data",
            "--web.listen-address=127.0.0.1:0",
        ]
        self._process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        """It says in its log which port it got."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = (self._folder / "log").read_text()
            found = re.search(r"Listening on.*?address=127\.0\.0\.1:(\d+)", text)
            if found:
                self.url = f"http://127.0.0.1:{found.group(1)}"
                if self._is_ready():
                    return
            assert self._process is not None
            assert self._process.poll() is None, text
            time.sleep(0.1)
        raise TimeoutError("Prometheus does not answer:\n" + (self._folder / "log").read_text())

    def _is_ready(self) -> bool:
        """It listens before it has read its log, and until then answers 503."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
