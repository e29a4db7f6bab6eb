"""A real Kafka broker on loopback, for tests: jars from Maven, one process, gone when the test session is.

with LocalKafka(cache=Path(".cache/kafka"), data=tmp_path) as kafka:
    kafka.servers  # "127.0.0.1:41234"
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

POM = Path(__file__).with_name("pom.xml")
START_SECONDS = 60.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}/log
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class CannotStart(Exception):
    """What is missing, or what the broker said."""


class LocalKafka:
    def __init__(self, cache: Path, data: Path) -> None:
        """`cache`: where the jars are kept from run to run; `data`: a folder of this broker's own."""
        self._cache = cache
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None
        broker, controller = free_ports(2)
        self.servers = f"127.0.0.1:{broker}"
        self._settings = _PROPERTIES.format(broker=broker, controller=controller, data=data)

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the broker answers. A broker that was stopped goes on with the data it had."""
        jars = fetch_jars(self._cache)
        self._data.mkdir(parents=True, exist_ok=True)
        settings = self._data / "server.properties"
        if not settings.exists():
            settings.write_text(self._settings)
            cluster = _java(jars, "kafka.tools.StorageTool", "random-uuid").strip()
            _java(jars, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        log = (self._data / "broker.out").open("ab")
        command = _command(jars, "kafka.Kafka", str(settings))
        self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._data)
        self._wait_until_it_answers()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        host, _, port = self.servers.partition(":")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise CannotStart(f"the broker ended with {self._process.returncode}:\n{self._last_lines()}")
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.1)
        raise CannotStart(f"the broker did not listen within {START_SECONDS:.0f} s:\n{self._last_lines()}")

    def _last_lines(self) -> str:
        return "\n".join((self._data / "broker.out").read_text(errors="replace").splitlines()[-20:])


def missing_programs() -> list[str]:
    """What a machine needs besides Python."""
    return [program for program in ("java", "mvn") if shutil.which(program) is None]


def fetch_jars(cache: Path) -> Path:
    """The folder with the broker's jars, downloaded the first time."""
    jars, ready = cache.absolute() / "jars", cache.absolute() / "ready"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run in several processes
        if not ready.exists():
            _download(jars)
            ready.touch()
    return jars


def _download(jars: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise CannotStart(f"Maven could not fetch the broker's jars:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _command(jars: Path, *arguments: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", quiet, "-cp", f"{jars}/*", *arguments]


def _java(jars: Path, *arguments: str) -> str:
    run = subprocess.run(_command(jars, *arguments), capture_output=True, text=True)
    if run.returncode:
        raise CannotStart(f"{arguments[0]} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return run.stdout
