"""What each query must give, computed by DuckDB over the same files, and the comparison with what an engine
gave."""

from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.nexmark.datasets import Dataset
from benchmarks.nexmark.queries import (
    AUCTION_MS,
    DOLLAR_TO_EURO,
    Q2_MODULUS,
    Q3_CATEGORY,
    Q3_STATES,
    QUERIES,
    SESSION_GAP_MS,
    SLIDE_MS,
    WINDOW_MS,
)
from benchmarks.paths import REFERENCES

_WINDOW = f"ts - ts % {WINDOW_MS}"
_STATES = ", ".join(f"'{state}'" for state in Q3_STATES)

_SQL = {
    "tumbling": f"""
        SELECT {_WINDOW} AS window_start, auction, count(*) AS bids, sum(price)::BIGINT AS total
        FROM keyed_bid GROUP BY ALL""",
    "q0": "SELECT auction, bidder, price, channel, ts FROM bid",
    "q1": f"""SELECT auction, bidder, {DOLLAR_TO_EURO}::DOUBLE * price AS price, channel, ts FROM bid""",
    "q2": f"SELECT auction, price FROM bid WHERE auction % {Q2_MODULUS} = 0",
    "q3": f"""
        SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = {Q3_CATEGORY} AND p.state IN ({_STATES})""",
    "q4": f"""
        WITH highest AS (
            SELECT b.ts - b.ts % {WINDOW_MS} AS window_start, a.id, a.category, max(b.price) AS price
            FROM auction a JOIN bid b ON a.id = b.auction
            WHERE b.ts BETWEEN a.ts AND a.expires AND b.ts <= a.ts + {AUCTION_MS} GROUP BY ALL)
        SELECT window_start, category, avg(price) AS average FROM highest GROUP BY ALL""",
    "q5": f"""
        WITH panes AS (
            SELECT ts - ts % {SLIDE_MS} AS pane, auction, count(*) AS bids FROM bid GROUP BY ALL),
        windows AS (
            SELECT pane - back * {SLIDE_MS} AS window_start, auction, sum(bids)::BIGINT AS bids
            FROM panes, range({WINDOW_MS // SLIDE_MS}) AS hops(back) GROUP BY ALL)
        SELECT window_start, auction, bids FROM windows
        QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY bids DESC, auction) = 1""",
    "q7": f"""
        SELECT {_WINDOW} AS window_start, auction, bidder, price FROM bid
        QUALIFY row_number() OVER (PARTITION BY {_WINDOW} ORDER BY price DESC, auction, bidder) = 1""",
    "q8": f"""
        SELECT DISTINCT p.ts - p.ts % {WINDOW_MS} AS window_start, p.id, p.name FROM person p JOIN auction a
        ON p.id = a.seller AND p.ts - p.ts % {WINDOW_MS} = a.ts - a.ts % {WINDOW_MS}""",
    "q11": f"""
        WITH marked AS (
            SELECT bidder, ts, coalesce(ts - lag(ts) OVER w >= {SESSION_GAP_MS}, true) AS starts
            FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY ts)),
        numbered AS (SELECT bidder, ts, sum(starts::INT) OVER (
            PARTITION BY bidder ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session FROM marked)
        SELECT bidder, count(*) AS bids, min(ts) AS session_start, max(ts) + {SESSION_GAP_MS} AS session_end
        FROM numbered GROUP BY bidder, session""",
    "q12": "SELECT bidder, 0::BIGINT AS window_start, count(*) AS bids FROM bid GROUP BY bidder",
}

# How results are brought into one form before they are compared. An engine may report a window of q12 more
# than once while it grows: the last report is the largest.
_NORMALISE = {
    "q1": "SELECT auction, bidder, round(price, 4) AS price, channel, ts FROM {rows}",
    "q4": "SELECT window_start, category, round(average, 4) AS average FROM {rows}",
    "q12": """SELECT bidder, sum(bids)::BIGINT AS bids FROM (
        SELECT bidder, window_start, max(bids) AS bids FROM {rows} GROUP BY ALL) GROUP BY bidder""",
}


@dataclass(frozen=True)
class Comparison:
    expected_rows: int
    actual_rows: int
    missing: int
    unexpected: int
    examples: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return self.missing == 0 and self.unexpected == 0

    def describe(self) -> str:
        if self.equal:
            return f"equal to the reference ({self.expected_rows:,} rows)"
        return (
            f"differs from the reference: {self.missing:,} rows missing and {self.unexpected:,} unexpected of "
            f"{self.expected_rows:,} expected and {self.actual_rows:,} given; for example {'; '.join(self.examples)}"
        )


def reference_file(query: str, dataset: Dataset) -> Path:
    """The query's result over the dataset as a Parquet file, computed once."""
    target = REFERENCES / f"{dataset.directory.name}-{dataset.slices}-{query}.parquet"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        compute_reference(query, {table: dataset.slice_files(table) for table in QUERIES[query].tables}, target)
    return target


def compute_reference(query: str, tables: dict[str, list[Path]], target: Path) -> None:
    with duckdb.connect() as connection:
        for table, files in tables.items():
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {_parquet(files)}")
        partial = target.with_suffix(".partial")
        connection.execute(f"COPY ({_SQL[query]}) TO '{partial}' (FORMAT parquet)")
        partial.replace(target)


def compare_results(query: str, expected: Path, actual: list[Path]) -> Comparison:
    """Compare as multisets: order does not matter, the number of equal rows does."""
    if not actual:
        return Comparison(_count(_parquet([expected])), 0, _count(_parquet([expected])), 0, ("no result files",))
    with duckdb.connect() as connection:
        for name, files in (("expected", [expected]), ("actual", actual)):
            connection.execute(f"CREATE TABLE {name} AS {_normalised(query, files)}")
        connection.execute("CREATE TABLE missing AS FROM expected EXCEPT ALL FROM actual")
        connection.execute("CREATE TABLE unexpected AS FROM actual EXCEPT ALL FROM expected")
        counts = [_count(name, connection) for name in ("expected", "actual", "missing", "unexpected")]
        examples = [
            f"{name} {row}"
            for name in ("missing", "unexpected")
            for row in connection.execute(f"FROM {name} ORDER BY ALL LIMIT 2").fetchall()
        ]
    return Comparison(*counts, tuple(examples))


def _normalised(query: str, files: list[Path]) -> str:
    columns = ", ".join(_as_epoch_ms(files, column) for column in QUERIES[query].columns)
    rows = f"(SELECT {columns} FROM {_parquet(files)})"
    return _NORMALISE.get(query, "FROM {rows}").format(rows=rows)


def _as_epoch_ms(files: list[Path], column: str) -> str:
    """Engines that have a type for times may write them as such."""
    described = duckdb.execute(f"DESCRIBE SELECT {column} FROM {_parquet(files)}").fetchone()
    assert described is not None
    return f"epoch_ms({column}) AS {column}" if str(described[1]).startswith("TIMESTAMP") else column


def _parquet(files: list[Path]) -> str:
    names = ", ".join(f"'{file}'" for file in files)
    return f"read_parquet([{names}], hive_partitioning = false)"


def _count(relation: str, connection: duckdb.DuckDBPyConnection | None = None) -> int:
    row = (connection or duckdb).execute(f"SELECT count(*) FROM {relation}").fetchone()
    assert row is not None
    return int(row[0])
