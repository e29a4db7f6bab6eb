"""What being scraped costs: throughput while /metrics is asked for each second, beside that of the seconds between.

    python -m benchmarks.scenarios.metrics_cost --pairs 40

One job runs all the time; the scraper goes on and off every few seconds. Both slots keep their cores busy, so whatever
driver and scraper take is taken from them. The result is the median over pairs of neighbouring stretches: a machine
that changes its speed changes both sides. Beside it stands the processor time that driver and scraper took, which
other work on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.process_tree import parse_stat
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.runtime.embedded import RunningJob

LEAST_RATIO = 0.98
STRETCH_SECONDS = 3.0
SCRAPER = """
import sys, time, urllib.request
while True:
    began = time.monotonic()
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(max(0.0, began + 1 - time.monotonic()))
"""


def pipeline(env: Environment) -> None:
    (
        env.from_source(bids(keys=1_000, count=10**12, rate=None, events_per_second=100_000), uid="bids")
        .with_watermark("ts", delay="1s")
        .key_by("auction")
        .window(Tumbling("10s"))
        .aggregate(bids=Count(), total=Sum("price"))
        .uid("windows")
        .sink_to(DiscardSink(), uid="out")
    )


class Change(NamedTuple):
    """The scraper was switched on or off."""

    at: float
    on: bool
    processor: float
    """Seconds that driver and scraper have taken so far, without the slots."""


class Scraper:
    """On for a stretch, off for a stretch; knows when it was which."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.changed: list[Change] = []

    def tick(self, job: RunningJob) -> None:
        now = time.monotonic()
        if self._process is None:
            url = f"http://127.0.0.1:{job.api.port}/metrics"
            self._process = subprocess.Popen([sys.executable, "-c", SCRAPER, url], stderr=subprocess.DEVNULL)
            self._note(True)
        elif now - self.changed[-1].at >= STRETCH_SECONDS:
            on = not self.changed[-1].on
            self._process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)
            self._note(on)

    def _note(self, on: bool) -> None:
        assert self._process is not None
        own = parse_stat(Path(f"/proc/{self._process.pid}/stat").read_text()).own_ticks / os.sysconf("SC_CLK_TCK")
        self.changed.append(Change(time.monotonic(), on, time.process_time() + own))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def processor_share(changed: list[Change], on: bool) -> float:
    """Of one core, taken by driver and scraper while it was on or off."""
    stretches = [
        (end.at - start.at, end.processor - start.processor) for start, end in pairwise(changed) if start.on == on
    ]
    return sum(taken for _, taken in stretches) / sum(seconds for seconds, _ in stretches)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=40)
    chosen = parser.parse_args()
    scraper = Scraper()
    with launcher("forked") as on:
        try:
            seconds = (chosen.pairs + 3) * STRETCH_SECONDS
            figures = measure(pipeline, on, seconds=seconds, meanwhile=scraper.tick)
        finally:
            scraper.close()
    changed = [change for change in scraper.changed if change.at > figures._began + 3]
    found = sorted(figures.ratios([(change.at, change.on) for change in changed]))
    scraped, left_alone = processor_share(changed, True), processor_share(changed, False)
    print(
        f"driver and scraper: {100 * scraped:.1f} % of a core while being scraped, {100 * left_alone:.1f} % otherwise; "
        f"{100 * (scraped - left_alone) / os.cpu_count():.1f} % of this machine's {os.cpu_count()} cores"
    )
    print(f"{figures.rows_per_second():,.0f} rows/s; ratios of {len(found)} pairs: {[round(r, 3) for r in found]}")
    ratio = statistics.median(found)
    print(f"throughput with scraping each second: {100 * ratio:.1f} % of without (at least {100 * LEAST_RATIO:.0f} %)")
    sys.exit(0 if ratio >= LEAST_RATIO else 1)


if __name__ == "__main__":
    main()
