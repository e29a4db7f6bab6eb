"""What slots are forked from."""

import subprocess
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from snapshot_engine.runtime.spark_daemon import leave_out_archives

_COUNT = """
import gc
from snapshot_engine.runtime.spark_daemon import preload
preload()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_nothing_that_is_preloaded_is_looked_at_by_the_garbage_collector() -> None:
    """In a process of its own: everything that this one has imported would be frozen with it."""
    answer = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    frozen, watched = map(int, answer.stdout.split())
    assert frozen > 50_000
    assert watched < 5_000


_EVALUATE = """
import os, signal
from snapshot_engine.runtime.spark_daemon import preload
preload()
child = os.fork()
if child == 0:
    signal.alarm(30)
    import polars as pl
    rows = pl.DataFrame({"key": range(100_000)}).lazy()
    kept = rows.with_columns(text=pl.col("key").cast(pl.String)).filter(pl.col("text").str.ends_with("7")).collect()
    os._exit(0 if len(kept.group_by("text").len()) == 10_000 else 1)
print(os.waitpid(child, 0)[1])
"""


def test_expressions_are_evaluated_in_a_process_that_was_forked_from_it() -> None:
    answer = subprocess.run([sys.executable, "-c", _EVALUATE], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["0"]


_MODULES = """
import sys
from snapshot_engine.runtime.spark_daemon import preload
preload()
print(*sys.modules)
"""


def test_operators_and_connectors_are_there_and_no_client_of_a_connector() -> None:
    answer = subprocess.run([sys.executable, "-c", _MODULES], capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.split())
    assert {"snapshot_engine.operators.window_aggregate", "snapshot_engine.connectors.generator"} <= loaded
    assert not {"pyspark", "confluent_kafka"} & loaded


def _in_one_archive(folder: Path, *packages: str, name: str = "pyspark.zip") -> str:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for package in packages:
            archive.writestr(f"{package}/__init__.py", "")
    return str(folder / name)


def test_an_archive_is_left_out_where_its_packages_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pyspark", "py4j"):
        (tmp_path / "installed" / package).mkdir(parents=True)
        (tmp_path / "installed" / package / "__init__.py").touch()
    installed = str(tmp_path / "installed")
    jar = _in_one_archive(tmp_path, "org", name="spark-core.jar")
    monkeypatch.setattr(sys, "path", [_in_one_archive(tmp_path, "pyspark", "py4j"), jar, installed])
    leave_out_archives()
    assert sys.path == [installed]


def test_no_reader_of_an_archive_is_left_that_would_read_it_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's worker invalidates the caches of imports: a reader of an archive then reads its table of contents."""
    for package in ("pyspark", "py4j"):
        (tmp_path / "installed" / package).mkdir(parents=True)
        (tmp_path / "installed" / package / "__init__.py").touch()
    archive = _in_one_archive(tmp_path, "pyspark", "py4j")
    monkeypatch.setattr(sys, "path", [archive, str(tmp_path / "installed")])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    for place in (archive, f"{archive}/pyspark"):
        assert PathFinder.find_spec("pyspark", [place]) or place in sys.path_importer_cache
    leave_out_archives()
    assert not [place for place in sys.path_importer_cache if place.startswith(archive)]


_TASK = """
import sys
from snapshot_engine.runtime.spark_daemon import preload, preload_task
preload_task()
preload()
before = set(sys.modules)
from snapshot_engine.runtime import slot, spark
import socket
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname())
print(*(set(sys.modules) - before))
"""


def test_a_task_imports_nothing_before_its_slot_says_hello() -> None:
    answer = subprocess.run([sys.executable, "-c", _TASK], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []


def test_an_archive_stays_where_nothing_else_has_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [_in_one_archive(tmp_path, "pyspark", "py4j"), str(tmp_path)]
    monkeypatch.setattr(sys, "path", list(places))
    leave_out_archives()
    assert sys.path == places
