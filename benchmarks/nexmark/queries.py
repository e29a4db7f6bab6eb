"""What the queries are: the tables they read and the rows they give.

Each engine writes each query once; its result has exactly these columns. Times are epoch milliseconds. Where
Nexmark leaves a tie open or relies on updates that some engine cannot give, the definition here is the one
that all share:
- q4: the highest valid bid of each auction per 10 s window of bid time, then its average per category and
  window.
- q5, q7: the one winner of each window; ties go to the smaller auction, then to the smaller bidder.
- q12: counts per bidder in windows of processing time; compared by each bidder's total over all windows.
"""

from dataclasses import dataclass

WINDOW_MS = 10_000
SLIDE_MS = 2_000
SESSION_GAP_MS = 10_000
Q2_MODULUS = 123
Q3_CATEGORY = 10
Q3_STATES = ("OR", "ID", "CA")
DOLLAR_TO_EURO = 0.908
AUCTION_MS = 20_000


@dataclass(frozen=True)
class Query:
    name: str
    tables: tuple[str, ...]
    columns: tuple[str, ...]
    description: str
    kind: str
    event_time: bool = True

    @property
    def stateful(self) -> bool:
        return self.kind != "stateless"


_ALL = (
    Query(
        "tumbling",
        ("keyed_bid",),
        ("window_start", "auction", "bids", "total"),
        "count and sum per auction in 10 s tumbling windows",
        "window",
    ),
    Query("q0", ("bid",), ("auction", "bidder", "price", "channel", "ts"), "pass through", "stateless", False),
    Query(
        "q1",
        ("bid",),
        ("auction", "bidder", "price", "channel", "ts"),
        "currency conversion",
        "stateless",
        False,
    ),
    Query("q2", ("bid",), ("auction", "price"), "selection by auction", "stateless", False),
    Query(
        "q3",
        ("person", "auction"),
        ("name", "city", "state", "auction"),
        "who sells in category 10 in three states: a join without end",
        "join",
        False,
    ),
    Query(
        "q4",
        ("auction", "bid"),
        ("window_start", "category", "average"),
        "average of the highest valid bids per category: an interval join and two aggregates",
        "window",
    ),
    Query(
        "q5",
        ("bid",),
        ("window_start", "auction", "bids"),
        "auction with most bids, hopping window",
        "window",
    ),
    Query("q7", ("bid",), ("window_start", "auction", "bidder", "price"), "highest bid of each window", "window"),
    Query(
        "q8",
        ("person", "auction"),
        ("window_start", "id", "name"),
        "persons who sold in the window in which they joined",
        "join",
    ),
    Query(
        "q11",
        ("bid",),
        ("bidder", "bids", "session_start", "session_end"),
        "bids per bidder and session of activity",
        "session",
    ),
    Query(
        "q12",
        ("bid",),
        ("bidder", "window_start", "bids"),
        "bids per bidder in windows of processing time",
        "window",
        False,
    ),
)
QUERIES = {query.name: query for query in _ALL}
NEXMARK_QUERIES = tuple(name for name in QUERIES if name != "tumbling")
