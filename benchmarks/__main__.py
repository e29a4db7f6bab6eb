"""The benchmarks' command line: install, check, run, compare."""

import argparse
import signal
import sys
from dataclasses import replace
from typing import Any

from benchmarks import environments
from benchmarks.cells import OUR_ENGINE, Entry
from benchmarks.engines import Engine
from benchmarks.machine import describe_machine
from benchmarks.paths import OUT, STORED_RATIOS
from benchmarks.plan import PLANS, Plan
from benchmarks.registry import ENGINES, engines_named
from benchmarks.regression import load_ratios, ratios_of, regressions, store_ratios
from benchmarks.report import read_entries, write_report
from benchmarks.scenario_runs import SCENARIOS, read_scenarios, run_scenarios


def install(engines: list[Engine]) -> None:
    environments.HARNESS.install()
    for engine in engines:
        engine.install()


def run(plan: Plan, engines: list[Engine], add: bool) -> bool:
    """Measure, write the reports, and say whether every result was equal to the reference."""
    from benchmarks.outcomes import Outcome
    from benchmarks.report import entry_of, merged
    from benchmarks.runner import run_plan

    machine = describe_machine()
    before = read_entries(OUT) if add else []

    def entries(outcomes: list[Outcome]) -> list[Entry]:
        return merged(before, [entry_of(outcome) for outcome in outcomes])

    def keep_report(outcomes: list[Outcome]) -> None:
        write_report(entries(outcomes), machine, OUT)

    journal = OUT / f"journal-{plan.name}.jsonl"
    outcomes = run_plan(plan, engines, journal, lambda line: print(line, flush=True), keep_report)
    write_all(entries(outcomes), machine)
    return all(outcome.equal for outcome in outcomes)


def write_all(entries: list[Entry], machine: dict[str, Any]) -> None:
    """Tables and plots, of the cells and of what scenarios have left."""
    from benchmarks.plots import plot_report

    plot_report(entries, read_scenarios(OUT), OUT)
    write_report(entries, machine, OUT)
    print(f"written: {OUT / 'report.md'}, report.json and plots beside it")


def prepare(plan: Plan, engines: list[Engine], largest: int) -> None:
    """Make the files that the plan's runs read, up to `largest` slices, so that no time is spent on it later."""
    from benchmarks.nexmark.datasets import open_dataset
    from benchmarks.nexmark.queries import QUERIES
    from benchmarks.sizing import SIZES

    for cell in plan.cells:
        for slices in (size for size in SIZES if size <= largest):
            for table in QUERIES[cell.query].tables:
                dataset = open_dataset(cell.stream, slices)
                for layout in {engine.layout for engine in engines}:
                    dataset.files(layout, cell.parallelism)(table)
                dataset.closing_file(table)
        print(f"{cell.query}, {cell.stream.keys:,} {cell.stream.key_type} keys: up to {largest} slices", flush=True)


def chosen_plan(chosen: argparse.Namespace) -> Plan:
    plan = PLANS[chosen.plan]()
    queries = [name for name in chosen.queries.split(",") if name]
    keys = [int(number) for number in chosen.keys.split(",") if number]
    cells = [cell for cell in plan.cells if not queries or cell.query in queries]
    plan = replace(plan, cells=tuple(cell for cell in cells if not keys or cell.stream.keys in keys))
    if chosen.target_seconds is not None:
        plan = replace(plan, target_seconds=chosen.target_seconds)
    if chosen.repetitions is not None:
        plan = replace(plan, repetitions=chosen.repetitions)
    if chosen.most_repetitions is not None:
        plan = replace(plan, most_repetitions=chosen.most_repetitions)
    if chosen.slots is not None:
        plan = replace(plan, cells=tuple(replace(cell, parallelism=chosen.slots) for cell in plan.cells))
    return replace(plan, fresh_workers=plan.fresh_workers or chosen.fresh)


def compare(store: bool) -> int:
    """Compare the ratios of the last report with the stored ones, or store them."""
    entries = read_entries(OUT)
    if not entries:
        print("there is no report to compare: run `make bench-quick` first")
        return 1
    measured = ratios_of(entries, OUR_ENGINE)
    if not measured:
        print(f"the last report has no cell in which both {OUR_ENGINE} and a peer were measured for long enough")
        return 1
    if store:
        store_ratios(STORED_RATIOS, {**load_ratios(STORED_RATIOS), **measured})
        print(f"stored {len(measured)} ratios in {STORED_RATIOS}")
        return 0
    stored = load_ratios(STORED_RATIOS)
    worse = regressions(stored, measured)
    compared = len(stored.keys() & measured.keys())
    if not compared:
        print(f"nothing to compare: {STORED_RATIOS} has none of the report's cells; store some: compare --store")
        return 1
    print("\n".join(worse) if worse else f"no regression in {compared} compared cells")
    return 1 if worse else 0


def scenarios(names: list[str]) -> bool:
    """Run them, and put their figures into the report."""
    well = run_scenarios(names, lambda line: print(line, flush=True))
    write_all(read_entries(OUT), describe_machine())
    return well


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    names = ", ".join(engine.name for engine in ENGINES)
    texts = {"install": "install engines", "prepare": "make a plan's input files", "run": "measure a plan"}
    for name, text in texts.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("--engines", default="", help=f"comma-separated, of: {names}; else those of the plan")
        command.add_argument("--plan", choices=sorted(PLANS), default="quick")
        command.add_argument("--queries", default="", help="only these, comma-separated")
        command.add_argument("--keys", default="", help="only cells with these numbers of keys, comma-separated")
        command.add_argument("--target-seconds", type=float, help="length of a measured run")
        command.add_argument("--repetitions", type=int, help="else those of the plan")
        command.add_argument("--most-repetitions", type=int, help="of noisy cells; else those of the plan")
        command.add_argument("--slots", type=int, help="instead of those of the plan's cells")
        command.add_argument("--fresh", action="store_true", help="a new process for every run: for figures of memory")
    commands.choices["prepare"].add_argument("--slices", type=int, default=200, help="the most of them in a run")
    commands.choices["run"].add_argument("--add", action="store_true", help="keep the last report's other entries")
    scenarios_command = commands.add_parser("scenarios", help="run scenarios and put their figures into the report")
    scenarios_command.add_argument("--only", default="", help=f"of: {', '.join(s.name for s in SCENARIOS)}")
    compare_command = commands.add_parser("compare", help="compare the last report with the stored ratios")
    compare_command.add_argument("--store", action="store_true", help="store them instead")
    return parser.parse_args(arguments)


def main() -> int:
    # Ending the harness ends its workers too: the exception leaves the contexts that own them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    chosen = parse(sys.argv[1:])
    if chosen.command == "compare":
        return compare(chosen.store)
    if chosen.command == "scenarios":
        return 0 if scenarios([name for name in chosen.only.split(",") if name]) else 1
    plan = chosen_plan(chosen)
    names = [name for name in chosen.engines.split(",") if name]
    engines = engines_named(names or list(plan.engines))
    if chosen.command == "prepare":
        prepare(plan, engines, chosen.slices)
        return 0
    install(engines)
    return 0 if chosen.command == "install" or run(plan, engines, chosen.add) else 1


if __name__ == "__main__":
    sys.exit(main())
