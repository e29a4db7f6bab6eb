"""What checkpoints cost: the same cell with and without them, from one and the same report."""

from typing import Any

from benchmarks.cells import Entry

_SAME = ("engine", "query", "keys", "key_type", "parallelism", "input")


def price_of_checkpoints(entries: list[Entry]) -> list[Entry]:
    """For each engine and cell measured both ways: the share of rows per core-second that checkpoints take."""
    without = {_key(e): e for e in entries if e["repetitions"] and not e["checkpoint_interval"]}
    prices = []
    for entry in entries:
        base = without.get(_key(entry))
        if base and entry["repetitions"] and entry["checkpoint_interval"]:
            price = 1 - entry["rows_per_core_s"] / base["rows_per_core_s"]
            prices.append({name: entry[name] for name in (*_SAME, "checkpoint_interval")} | {"price": price})
    return prices


def render_prices(prices: list[Entry]) -> list[str]:
    if not prices:
        return []
    rows = [
        f"| {p['engine']} | {p['query']} | {p['keys']:,} {p['key_type']} | {p['parallelism']} "
        f"| {p['checkpoint_interval']} ms | {p['price']:.1%} |"
        for p in prices
    ]
    heading = ["## Price of checkpoints", "", "Share of rows per core-second that checkpoints take.", ""]
    return [*heading, "| engine | query | keys | slots | interval | price |", "|---|---|---|---:|---:|---:|", *rows, ""]


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[name] for name in _SAME)
