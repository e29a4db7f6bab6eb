"""The same events for every engine, made from a seed.

Nexmark numbers its events: of every 50, the first is a person, the next three are auctions and 46 are bids.
Event i happens at BASE_MS + i / events_per_second. Events are made in slices, each from a random stream of
its own that is named by (seed, table, slice): any slice of any table can be made alone and always comes out
the same.

`keyed_bid` is the simple stream of the headline benchmark: bids whose auction is uniform over [0, keys).
"""

from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BASE_MS = 1_700_000_000_000
EVENTS_PER_EPOCH = 50
PERSONS_PER_EPOCH = 1
AUCTIONS_PER_EPOCH = 3
BIDS_PER_EPOCH = 46
FIRST_CATEGORY_ID = 10
CATEGORIES = 5
HOT_ID_STRIDE = 100
LONGEST_AUCTION_MS = 20_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple", *(f"channel-{number}" for number in range(96)))
TABLES = ("person", "auction", "bid", "keyed_bid")
KEY_TYPES = ("int", "string", "long-string")
"""Short strings have some 12 bytes, long ones 36, as UUIDs have."""


@dataclass(frozen=True)
class Stream:
    """What names a stream of events; two equal streams have equal events.

    `keys` is how many auctions and people are active at a time, and for `keyed_bid` the number of distinct
    auctions.
    """

    seed: int = 1
    keys: int = 1_000
    key_type: str = "int"
    events_per_second: int = 100_000
    slice_events: int = 100_000

    def __post_init__(self) -> None:
        if self.key_type not in KEY_TYPES:
            raise ValueError(f"key_type is {self.key_type!r}; expected one of {', '.join(KEY_TYPES)}")
        if self.slice_events % EVENTS_PER_EPOCH:
            raise ValueError(f"slice_events is {self.slice_events}; expected a multiple of {EVENTS_PER_EPOCH}")

    def parameters(self) -> dict[str, int | str]:
        return asdict(self)


def rows_per_slice(stream: Stream, table: str) -> int:
    per_epoch = {
        "person": PERSONS_PER_EPOCH,
        "auction": AUCTIONS_PER_EPOCH,
        "bid": BIDS_PER_EPOCH,
        "keyed_bid": EVENTS_PER_EPOCH,
    }
    return stream.slice_events // EVENTS_PER_EPOCH * per_epoch[table]


def make_slice(stream: Stream, table: str, index: int) -> pa.Table:
    makers = {"person": _persons, "auction": _auctions, "bid": _bids, "keyed_bid": _keyed_bids}
    return makers[table](stream, index, _random(stream, table, index))


def make_closing_row(table: str, ts: int, key_type: str = "int") -> pa.Table:
    """One row far in the future with ids of -1: it closes the windows of streams that have no end."""
    stream = Stream(slice_events=EVENTS_PER_EPOCH, keys=1, key_type=key_type)
    template = make_slice(stream, table, 0).slice(0, 1)
    ids = {"auction", "bidder", "seller", "id"}
    values = {}
    for name, column in zip(template.column_names, template.columns, strict=True):
        if name in ("ts", "expires"):
            values[name] = pa.array([ts], pa.int64())
        elif name in ids:
            values[name] = pa.array(["-1" if pa.types.is_string(column.type) else -1], column.type)
        else:
            values[name] = column
    return pa.table(values)


def _random(stream: Stream, table: str, index: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[stream.seed, index * len(TABLES) + TABLES.index(table)]))


def _event_numbers(stream: Stream, index: int, first_offset: int, per_epoch: int) -> np.ndarray:
    """The numbers of the events of one kind: per_epoch of every 50, starting at first_offset."""
    first_epoch = index * stream.slice_events // EVENTS_PER_EPOCH
    epochs = np.arange(first_epoch, first_epoch + stream.slice_events // EVENTS_PER_EPOCH, dtype=np.int64)
    offsets = np.arange(first_offset, first_offset + per_epoch, dtype=np.int64)
    return (epochs[:, None] * EVENTS_PER_EPOCH + offsets).ravel()


def _times(stream: Stream, numbers: np.ndarray) -> np.ndarray:
    return BASE_MS + numbers * 1000 // stream.events_per_second


def _last_id(numbers: np.ndarray, per_epoch: int, first_offset: int) -> np.ndarray:
    """The newest id of a kind that exists when the event happens (ids count from 0)."""
    offset = numbers % EVENTS_PER_EPOCH
    made_in_this_epoch = np.clip(offset - first_offset + 1, 0, per_epoch)
    return np.maximum(numbers // EVENTS_PER_EPOCH * per_epoch + made_in_this_epoch - 1, 0)


def _pick_active(random: np.random.Generator, last: np.ndarray, active: int, hot_share: float) -> np.ndarray:
    """Ids of the newest `active` ones; a share of the picks goes to a few hot ids."""
    picked = last - (random.random(len(last)) * np.minimum(last + 1, active)).astype(np.int64)
    hot = last // HOT_ID_STRIDE * HOT_ID_STRIDE
    return np.where(random.random(len(last)) < hot_share, hot, picked)


def _prices(random: np.random.Generator, count: int) -> np.ndarray:
    """From 100 to 100 million, every order of magnitude equally likely."""
    return np.round(np.power(10.0, random.random(count) * 6) * 100).astype(np.int64)


def _choose(random: np.random.Generator, values: tuple[str, ...], count: int) -> pa.Array:
    indices = pa.array(random.integers(0, len(values), count, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array(values)).cast(pa.string())


def _persons(stream: Stream, index: int, random: np.random.Generator) -> pa.Table:
    numbers = _event_numbers(stream, index, 0, PERSONS_PER_EPOCH)
    count = len(numbers)
    first, last = _choose(random, FIRST_NAMES, count), _choose(random, LAST_NAMES, count)
    return pa.table(
        {
            "id": pa.array(numbers // EVENTS_PER_EPOCH),
            "name": pc.binary_join_element_wise(first, last, " "),
            "city": _choose(random, CITIES, count),
            "state": _choose(random, STATES, count),
            "ts": pa.array(_times(stream, numbers)),
        }
    )


def _auctions(stream: Stream, index: int, random: np.random.Generator) -> pa.Table:
    numbers = _event_numbers(stream, index, PERSONS_PER_EPOCH, AUCTIONS_PER_EPOCH)
    times = _times(stream, numbers)
    sellers = _pick_active(random, _last_id(numbers, PERSONS_PER_EPOCH, 0), stream.keys, hot_share=0.25)
    return pa.table(
        {
            "id": pa.array(_last_id(numbers, AUCTIONS_PER_EPOCH, PERSONS_PER_EPOCH)),
            "seller": pa.array(sellers),
            "category": pa.array(random.integers(FIRST_CATEGORY_ID, FIRST_CATEGORY_ID + CATEGORIES, len(numbers))),
            "expires": pa.array(times + random.integers(1, LONGEST_AUCTION_MS, len(numbers))),
            "ts": pa.array(times),
        }
    )


def _bids(stream: Stream, index: int, random: np.random.Generator) -> pa.Table:
    numbers = _event_numbers(stream, index, PERSONS_PER_EPOCH + AUCTIONS_PER_EPOCH, BIDS_PER_EPOCH)
    auctions = _last_id(numbers, AUCTIONS_PER_EPOCH, PERSONS_PER_EPOCH)
    return pa.table(
        {
            "auction": pa.array(_pick_active(random, auctions, stream.keys, hot_share=0.5)),
            "bidder": pa.array(
                _pick_active(random, _last_id(numbers, PERSONS_PER_EPOCH, 0), stream.keys, hot_share=0.25)
            ),
            "price": pa.array(_prices(random, len(numbers))),
            "channel": _choose(random, CHANNELS, len(numbers)),
            "ts": pa.array(_times(stream, numbers)),
        }
    )


def _keyed_bids(stream: Stream, index: int, random: np.random.Generator) -> pa.Table:
    numbers = np.arange(index * stream.slice_events, (index + 1) * stream.slice_events, dtype=np.int64)
    auctions = pa.array(random.integers(0, stream.keys, len(numbers)))
    if stream.key_type != "int":
        auctions = pc.binary_join_element_wise("auction", auctions.cast(pa.string()), "-")
    if stream.key_type == "long-string":
        auctions = pc.utf8_rpad(auctions, 36, "-")
    return pa.table(
        {
            "auction": auctions,
            "bidder": pa.array(random.integers(0, 100_000, len(numbers))),
            "price": pa.array(random.integers(1, 10_000, len(numbers))),
            "ts": pa.array(_times(stream, numbers)),
        }
    )
