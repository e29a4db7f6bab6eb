"""The benchmarks' command line: install, check, run, compare."""

import argparse
import json
import signal
import sys

from benchmarks import environments
from benchmarks.engines import Engine
from benchmarks.machine import describe_machine
from benchmarks.paths import OUT, STORED_RATIOS
from benchmarks.plan import PLANS
from benchmarks.registry import ENGINES, OUR_ENGINE, engines_named
from benchmarks.regression import load_ratios, ratios_of, regressions, store_ratios


def install(engines: list[Engine]) -> None:
    environments.HARNESS.install()
    for engine in engines:
        engine.install()


def run(plan_name: str, engine_names: list[str], queries: list[str], target_seconds: float | None) -> bool:
    """Measure, write the reports, and say whether every result was equal to the reference."""
    from dataclasses import replace

    from benchmarks.outcomes import Outcome
    from benchmarks.plots import plot_report
    from benchmarks.report import entry_of, write_report
    from benchmarks.runner import run_plan

    plan = PLANS[plan_name]()
    engines = engines_named(engine_names or list(plan.engines))
    install(engines)
    if queries:
        plan = replace(plan, cells=tuple(cell for cell in plan.cells if cell.query in queries))
    if target_seconds is not None:
        plan = replace(plan, target_seconds=target_seconds)
    machine = describe_machine()

    def keep_report(outcomes: list[Outcome]) -> None:
        write_report([entry_of(outcome) for outcome in outcomes], machine, OUT)

    journal = OUT / f"journal-{plan.name}.jsonl"
    outcomes = run_plan(plan, engines, journal, lambda line: print(line, flush=True), keep_report)
    plot_report([entry_of(outcome) for outcome in outcomes], OUT)
    print(f"written: {OUT / 'report.md'}, report.json and plots beside it")
    return all(outcome.equal for outcome in outcomes)


def compare(store: bool) -> int:
    """Compare the ratios of the last report with the stored ones, or store them."""
    report = OUT / "report.json"
    if not report.exists():
        print("there is no report to compare: run `make bench-quick` first")
        return 1
    entries = json.loads(report.read_text())
    measured = ratios_of(entries, OUR_ENGINE)
    if not measured:
        print(f"the last report has no cell in which both {OUR_ENGINE} and a peer were measured")
        return 1
    if store:
        store_ratios(STORED_RATIOS, {**load_ratios(STORED_RATIOS), **measured})
        print(f"stored {len(measured)} ratios in {STORED_RATIOS}")
        return 0
    stored = load_ratios(STORED_RATIOS)
    worse = regressions(stored, measured)
    compared = len(stored.keys() & measured.keys())
    print("\n".join(worse) if worse else f"no regression in {compared} compared cells")
    return 1 if worse or not compared else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    names = ", ".join(engine.name for engine in ENGINES)
    for name, text in (("install", "install engines"), ("run", "measure a plan")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--engines", default="", help=f"comma-separated, of: {names}; else those of the plan")
    commands.choices["run"].add_argument("--plan", choices=sorted(PLANS), default="quick")
    commands.choices["run"].add_argument("--queries", default="", help="only these, comma-separated")
    commands.choices["run"].add_argument("--target-seconds", type=float, help="length of a measured run")
    compare_command = commands.add_parser("compare", help="compare the last report with the stored ratios")
    compare_command.add_argument("--store", action="store_true", help="store them instead")
    return parser.parse_args(arguments)


def main() -> int:
    # Ending the harness ends its workers too: the exception leaves the contexts that own them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    chosen = parse(sys.argv[1:])
    if chosen.command == "compare":
        return compare(chosen.store)
    names = [name for name in chosen.engines.split(",") if name]
    if chosen.command == "install":
        install(engines_named(names))
        return 0
    queries = [name for name in chosen.queries.split(",") if name]
    return 0 if run(chosen.plan, names, queries, chosen.target_seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
