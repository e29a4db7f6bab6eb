"""This engine, slots as tasks of an embedded Spark: the job of the headline, its sources keeping together."""

import os
import time

from benchmarks.process_tree import cpu_seconds
from benchmarks.scenarios.generated import KEYS, SLOTS, asked_seconds, tell
from benchmarks.scenarios.headline import pipeline_over
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.runtime.embedded import RunningJob


class Processor:
    """The CPU time of all processes between the first look and the last."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, float]] = []

    def look(self, _job: RunningJob) -> None:
        self._looks.append((time.monotonic(), cpu_seconds(os.getpid())))

    def cores(self) -> float:
        (began, before), (ended, after) = self._looks[0], self._looks[-1]
        return (after - before) / (ended - began)


def main() -> None:
    seconds = asked_seconds()
    processor = Processor()

    def look_when_warm(job: RunningJob) -> None:
        if time.monotonic() >= warm:
            processor.look(job)

    with launcher("spark") as on:
        warm = time.monotonic() + seconds / 3
        figures = measure(
            pipeline_over(KEYS, "5s"),
            on,
            seconds=seconds * 2 / 3,
            warm_up=seconds / 3,
            parallelism=SLOTS,
            meanwhile=look_when_warm,
        )
    tell(figures.rows_per_second(), figures.rows_per_second() / processor.cores(), len(figures.checkpoints))


if __name__ == "__main__":
    main()
