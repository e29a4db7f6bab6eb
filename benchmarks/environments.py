"""Virtual environments of the harness and of each peer, installed by the harness itself."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paths import ENVIRONMENTS, REPOSITORY


@dataclass(frozen=True)
class Environment:
    """What an engine needs: packages from PyPI and, beside them, jars from Maven Central."""

    name: str
    packages: tuple[str, ...]
    jars: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        return ENVIRONMENTS / self.name

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    @property
    def jar_directory(self) -> Path:
        return self.directory / "benchmark-jars"

    def jar_files(self) -> list[Path]:
        return sorted(self.jar_directory.glob("*.jar"))

    def install(self) -> None:
        """Idempotent: does nothing when exactly this is there already."""
        if self._stamp.exists() and self._stamp.read_text() == self._digest():
            return
        print(f"installing {self.name}: {', '.join(self.packages + self.jars)}", flush=True)
        if not self.python.exists():
            _call(sys.executable, "-m", "venv", str(self.directory))
        _call(str(self.python), "-m", "pip", "install", "-q", *self.packages)
        for jar in self.jars:
            _download_jar(jar, self.jar_directory)
        self._stamp.write_text(self._digest())

    @property
    def _stamp(self) -> Path:
        return self.directory / ".benchmark-installed"

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps([self.packages, self.jars]).encode()).hexdigest()


class ProjectEnvironment(Environment):
    """The project's own environment, which `make setup` installs."""

    @property
    def directory(self) -> Path:
        return REPOSITORY / ".venv"

    def install(self) -> None:
        if not self.python.exists():
            raise SystemExit("the project's own environment is not there: run `make setup` first")


def _download_jar(coordinates: str, directory: Path) -> None:
    _call("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={directory}")


def _call(*command: str) -> None:
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError as error:
        raise SystemExit(f"{command[0]} is needed to install the peers, and is not there") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"installing a peer failed ({error.returncode}): {' '.join(command)}") from error


HARNESS = Environment(
    "harness", ("duckdb~=2.0", "pyarrow~=26.0", "numpy<2.5", "matplotlib~=3.11", "py-spy~=0.4", "confluent-kafka~=2.16")
)
FLINK = Environment(
    "flink",
    ("apache-flink==2.3.0",),
    (
        "org.apache.flink:flink-sql-parquet:2.3.0",
        "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
        "org.apache.hadoop:hadoop-client-api:3.4.1",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    ),
)
SPARK = Environment("spark", ("pyspark==4.3.0", "pandas>=2.2,<3", "pyarrow~=26.0", "protobuf>=6"))
BYTEWAX = Environment("bytewax", ("bytewax==0.21.1", "pyarrow~=26.0", "numpy<2.5"))
PROJECT = ProjectEnvironment("project", ())
ALL = (HARNESS, FLINK, SPARK, BYTEWAX)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for environment in ALL:
        if environment.name in wanted:
            environment.install()
