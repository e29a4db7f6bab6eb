"""Aggregates as columns of accumulators: what is kept per key, how batches are added, what comes out.

What several aggregates need is kept once: `Sum("price")` and `Avg("price")` share their sum. Values are counted by
rows and by nulls, so that a column without nulls costs nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.accumulate import (
    ALL_VALID,
    add_values,
    count_invalid,
    count_rows,
    lower_floats,
    lower_integers,
    raise_floats,
    raise_integers,
)
from snapshot_engine.kernels.arrow_views import (
    SIGN_BIT,
    Rows,
    UnsupportedType,
    Words,
    fixed_width,
    is_wordlike,
    plain,
    validity,
    words_of,
)
from snapshot_engine.kernels.merging import (
    ADD_FLOATS,
    ADD_INTEGERS,
    KEEP,
    LOWER_FLOATS,
    LOWER_INTEGERS,
    RAISE_FLOATS,
    RAISE_INTEGERS,
    merge_rows,
)
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, CountDistinct, Max, Min, Sum
from snapshot_engine.state.key_codec import plain_type
from snapshot_engine.state.stored_columns import array_of_words

Matrix = npt.NDArray[np.int64]


class Kind(Enum):
    ROWS = "rows"
    NULLS = "nulls"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    DISTINCT = "distinct"


_INITIAL: dict[tuple[Kind, bool], int] = {
    (Kind.MIN, False): 2**63 - 1,
    (Kind.MAX, False): -(2**63),
    (Kind.MIN, True): int(np.array([np.nan]).view(np.int64)[0]),
    (Kind.MAX, True): int(np.array([np.nan]).view(np.int64)[0]),
}

_UPDATES: dict[tuple[Kind, bool], Callable[..., None]] = {
    (Kind.SUM, False): add_values,
    (Kind.SUM, True): add_values,
    (Kind.MIN, False): lower_integers,
    (Kind.MAX, False): raise_integers,
    (Kind.MIN, True): lower_floats,
    (Kind.MAX, True): raise_floats,
}

MERGE_CODES: dict[tuple[Kind, bool], int] = {
    (Kind.SUM, True): ADD_FLOATS,
    (Kind.MIN, False): LOWER_INTEGERS,
    (Kind.MAX, False): RAISE_INTEGERS,
    (Kind.MIN, True): LOWER_FLOATS,
    (Kind.MAX, True): RAISE_FLOATS,
    (Kind.DISTINCT, False): KEEP,
}
"""How two accumulators become one; integers are added by all others."""


@dataclass(frozen=True)
class Accumulator:
    """One column of the matrix. Floats are kept as their bits."""

    kind: Kind
    column: str | None = None
    is_float: bool = False

    @property
    def name(self) -> str:
        return self.kind.value if self.column is None else f"{self.kind.value}({self.column})"

    @property
    def initial(self) -> int:
        return _INITIAL.get((self.kind, self.is_float), 0)

    @property
    def merge_code(self) -> int:
        return MERGE_CODES.get((self.kind, self.is_float), ADD_INTEGERS)


class AggregateColumns:
    """The accumulators of `aggregates` over rows of `schema`."""

    def __init__(self, aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self._aggregates = dict(aggregates)
        self._types = {name: plain_type(schema.field(name).type) for name in _columns_of(aggregates)}
        for name, aggregate in self._aggregates.items():
            _check(name, aggregate, self._types)
        self.accumulators = self._choose()
        self.distinct_columns = tuple(
            dict.fromkeys(a.column for a in aggregates.values() if isinstance(a, CountDistinct))
        )
        self._position = {accumulator.name: n for n, accumulator in enumerate(self.accumulators)}

        self.initial: Words = np.array([accumulator.initial for accumulator in self.accumulators], np.int64)
        """A row of accumulators that have seen nothing."""
        self._merge_codes: Words = np.array([accumulator.merge_code for accumulator in self.accumulators], np.int64)

    @property
    def input_columns(self) -> tuple[str, ...]:
        return tuple(self._types)

    def fields(self) -> list[pa.Field]:
        return [pa.field(name, _result_type(a, self._types)) for name, a in self._aggregates.items()]

    def position(self, kind: Kind, column: str | None = None) -> int:
        return self._position[Accumulator(kind, column).name]

    def accumulate(self, batch: pa.RecordBatch, rows: Rows, matrix: Matrix) -> None:
        """Add each row of the batch to the row of the matrix that `rows` has for it. Distinct values are not counted
        here."""
        count_rows(rows, matrix, 0)
        floats = matrix.view(np.float64)
        read: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]] = {}
        for number, accumulator in enumerate(self.accumulators):
            column = accumulator.column
            if column is None or accumulator.kind is Kind.DISTINCT:
                continue
            if column not in read:
                read[column] = numbers_of(batch.column(column))
            values, valid = read[column]
            if accumulator.kind is Kind.NULLS:
                count_invalid(rows, valid, matrix, number)
            else:
                if accumulator.kind is not Kind.SUM:
                    values = _flip_unsigned(values, self._types[column])
                target = floats if accumulator.is_float else matrix
                _UPDATES[accumulator.kind, accumulator.is_float](rows, values, valid, target, number)

    def merge(self, source: Matrix, source_rows: Rows, matrix: Matrix, rows: Rows) -> None:
        """Add rows of `source` to rows of `matrix`, pair by pair; distinct values as above."""
        merge_rows(source, source_rows, matrix, rows, self._merge_codes)

    @property
    def stored_names(self) -> list[str]:
        """The accumulators' columns in written tables."""
        return [f"acc.{accumulator.name}" for accumulator in self.accumulators]

    def stored(self, matrix: Matrix) -> list[pa.Array]:
        """The accumulators of the rows of a matrix as columns."""
        arrays = []
        for number, accumulator in enumerate(self.accumulators):
            column: Words = np.ascontiguousarray(matrix[:, number])
            arrays.append(pa.array(column.view(np.float64) if accumulator.is_float else column))
        return arrays

    def restored(self, batch: pa.RecordBatch) -> Matrix:
        """The way back from `stored`."""
        matrix = np.empty((batch.num_rows, len(self.accumulators)), np.int64)
        for number, name in enumerate(self.stored_names):
            matrix[:, number] = batch.column(name).to_numpy().view(np.int64)
        return matrix

    def results(self, matrix: Matrix) -> list[pa.Array]:
        """One array per aggregate, for the rows of the matrix."""
        return [self._result(aggregate, matrix) for aggregate in self._aggregates.values()]

    def _result(self, aggregate: Aggregate, matrix: Matrix) -> pa.Array:
        if isinstance(aggregate, Count):
            return pa.array(matrix[:, 0].copy())
        column = aggregate.column
        if isinstance(aggregate, CountDistinct):
            return pa.array(self._column(matrix, Kind.DISTINCT, column))
        counts = matrix[:, 0] - matrix[:, self.position(Kind.NULLS, column)]
        valid = counts > 0
        type_ = self._types[column]
        if isinstance(aggregate, Min | Max):
            kind = Kind.MIN if isinstance(aggregate, Min) else Kind.MAX
            return array_of_words(_flip_unsigned(self._column(matrix, kind, column), type_), valid, type_)
        sums = self._column(matrix, Kind.SUM, column)
        if isinstance(aggregate, Sum):
            return array_of_words(sums, valid, _result_type(aggregate, self._types))
        totals = sums.view(np.float64) if pa.types.is_floating(type_) else sums
        with np.errstate(invalid="ignore", divide="ignore"):
            return array_of_words((totals / counts).view(np.int64), valid, pa.float64())

    def _column(self, matrix: Matrix, kind: Kind, column: str) -> Words:
        """A copy, even where the matrix has no other column: what goes out must not change any more."""
        return matrix[:, self.position(kind, column)].copy()

    def _choose(self) -> tuple[Accumulator, ...]:
        chosen: dict[str, Accumulator] = {"rows": Accumulator(Kind.ROWS)}
        for aggregate in self._aggregates.values():
            for accumulator in self._needed_for(aggregate):
                chosen[accumulator.name] = accumulator
        return tuple(chosen.values())

    def _needed_for(self, aggregate: Aggregate) -> Sequence[Accumulator]:
        if isinstance(aggregate, Count):
            return ()
        column = aggregate.column
        if isinstance(aggregate, CountDistinct):
            return (Accumulator(Kind.DISTINCT, column),)
        kind = {Min: Kind.MIN, Max: Kind.MAX}.get(type(aggregate), Kind.SUM)
        return (
            Accumulator(Kind.NULLS, column),
            Accumulator(kind, column, pa.types.is_floating(self._types[column])),
        )


def numbers_of(column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """The values as accumulators take them (float64 or int64), and which are valid."""
    array = plain(column)
    valid = validity(array)
    if pa.types.is_floating(array.type):
        values: npt.NDArray[Any] = fixed_width(array.cast(pa.float64()), np.float64)
    else:
        values = words_of(array)
    return values, ALL_VALID if valid is None else valid


def _flip_unsigned(words: Words, type_: pa.DataType) -> Words:
    """Unsigned words such that they have their order when they are read as signed ones; done twice, they are back."""
    return (words.view(np.uint64) ^ SIGN_BIT).view(np.int64) if pa.types.is_uint64(type_) else words


def _columns_of(aggregates: Mapping[str, Aggregate]) -> list[str]:
    return list(dict.fromkeys(a.column for a in aggregates.values() if not isinstance(a, Count)))


def _result_type(aggregate: Aggregate, types: Mapping[str, pa.DataType]) -> pa.DataType:
    if isinstance(aggregate, Count | CountDistinct):
        return pa.int64()
    if isinstance(aggregate, Avg):
        return pa.float64()
    type_ = types[aggregate.column]
    if isinstance(aggregate, Sum):
        return pa.float64() if pa.types.is_floating(type_) else pa.int64()
    return type_


def _check(name: str, aggregate: Aggregate, types: Mapping[str, pa.DataType]) -> None:
    if isinstance(aggregate, Count | CountDistinct):
        return
    type_ = types[aggregate.column]
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    if number or (isinstance(aggregate, Min | Max) and is_wordlike(type_)):
        return
    wanted = "a number" if isinstance(aggregate, Sum | Avg) else "a number, a date, a time or a boolean"
    raise UnsupportedType(
        f"{name}={aggregate}: column {aggregate.column!r} is {type_}, but must be {wanted}; cast it first, or use "
        "reduce, which takes any type"
    )
