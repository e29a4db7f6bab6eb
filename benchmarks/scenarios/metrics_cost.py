"""What being scraped costs: throughput with /metrics asked for each second, beside the same job left alone.

    python -m benchmarks.scenarios.metrics_cost --rounds 4

Both slots keep their cores busy, so whatever driver and scraper take is taken from them. Rounds alternate, and the
result is the median of the rounds' ratios: a machine that changes its speed changes both sides.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from benchmarks.scenarios.measured_job import Figures, launcher, measure
from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.runtime.embedded import RunningJob
from snapshot_engine.runtime.launcher import SlotLauncher

LEAST_RATIO = 0.98
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


def run(on: SlotLauncher, seconds: float, scraped: bool) -> Figures:
    scraper: list[subprocess.Popen[bytes]] = []

    def scrape(job: RunningJob) -> None:
        if scraped and not scraper:
            url = f"http://127.0.0.1:{job.api.port}/metrics"
            scraper.append(subprocess.Popen([sys.executable, "-c", SCRAPER, url], stderr=subprocess.DEVNULL))

    try:
        return measure(pipeline, on, seconds=seconds, meanwhile=scrape)
    finally:
        for process in scraper:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0)
    chosen = parser.parse_args()
    ratios = []
    with launcher("forked") as on:
        for number in range(chosen.rounds):
            order = (False, True) if number % 2 == 0 else (True, False)
            rates = {scraped: run(on, chosen.seconds, scraped).rows_per_second() for scraped in order}
            ratios.append(rates[True] / rates[False])
            alone, scraped = rates[False], rates[True]
            print(f"{alone:12,.0f} rows/s alone {scraped:12,.0f} scraped  ratio {ratios[-1]:.3f}", flush=True)
    ratio = statistics.median(ratios)
    print(f"throughput with scraping each second: {100 * ratio:.1f} % of without (at least {100 * LEAST_RATIO:.0f} %)")
    sys.exit(0 if ratio >= LEAST_RATIO else 1)


if __name__ == "__main__":
    main()
