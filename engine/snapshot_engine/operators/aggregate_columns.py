"""Aggregates as columns of accumulators: what is kept per key, how batches are added, what comes out.

What several aggregates need is kept once: `Sum("price")` and `Avg("price")` share their sum. Values are counted by
rows and by nulls, so that a column without nulls costs nothing for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.accumulate import (
    ALL_VALID,
    add_signed,
    add_unsigned,
    add_values,
    count_carries,
    count_invalid,
    count_invalid_weights,
    count_rows,
    count_weights,
    lower_floats,
    lower_integers,
    raise_floats,
    raise_integers,
    reach_of,
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
    CARRYING,
    KEEP,
    LOWER_FLOATS,
    LOWER_INTEGERS,
    RAISE_FLOATS,
    RAISE_INTEGERS,
    SUM_SIGNED,
    SUM_UNSIGNED,
    merge_rows,
)
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, CountDistinct, Max, Min, Sum
from snapshot_engine.operators.weights import weights_of
from snapshot_engine.state.key_codec import plain_type
from snapshot_engine.state.stored_columns import array_of_words

Matrix = npt.NDArray[np.int64]


class Kind(Enum):
    ROWS = "rows"
    NULLS = "nulls"
    SUM = "sum"
    CARRY = "carry"
    """How often the sum in the column before this one has run over, in units of 2**64."""
    MIN = "min"
    MAX = "max"
    DISTINCT = "distinct"


_PARTIAL_KINDS = (Kind.SUM, Kind.MIN, Kind.MAX)

_INITIAL: dict[tuple[Kind, bool], int] = {
    (Kind.MIN, False): 2**63 - 1,
    (Kind.MAX, False): -(2**63),
    (Kind.MIN, True): int(np.array([np.nan]).view(np.int64)[0]),
    (Kind.MAX, True): int(np.array([np.nan]).view(np.int64)[0]),
}

_UPDATES: dict[tuple[Kind, bool], Callable[..., None]] = {
    (Kind.SUM, True): add_values,
    (Kind.MIN, False): lower_integers,
    (Kind.MAX, False): raise_integers,
    (Kind.MIN, True): lower_floats,
    (Kind.MAX, True): raise_floats,
}

MERGE_CODES: dict[tuple[Kind, bool], int] = {
    (Kind.SUM, False): SUM_SIGNED,
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
    is_unsigned: bool = False
    """Of a sum: whether it is one of uint64."""
    carries: bool = False
    """Of a sum: whether the next accumulator is its carry."""

    @property
    def name(self) -> str:
        return self.kind.value if self.column is None else f"{self.kind.value}({self.column})"

    @property
    def partial_name(self) -> str:
        """The column that has its value over several rows, where rows were combined before they were sent."""
        return f"__{self.name}__"

    @property
    def initial(self) -> int:
        return _INITIAL.get((self.kind, self.is_float), 0)

    @property
    def merge_code(self) -> int:
        code = SUM_UNSIGNED if self.is_unsigned else MERGE_CODES.get((self.kind, self.is_float), ADD_INTEGERS)
        return code + CARRYING if self.carries else code


class SumTooLarge(ArithmeticError):
    """A sum of integers that 64 bits do not hold."""


class AggregateColumns:
    """The accumulators of `aggregates` over rows of `schema`."""

    def __init__(self, aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self.operator = "aggregate"
        """Whose accumulators they are, for messages."""
        self._aggregates = dict(aggregates)
        self._types = {name: plain_type(schema.field(name).type) for name in _columns_of(aggregates)}
        for name, aggregate in self._aggregates.items():
            _check(name, aggregate, self._types)
        self._carried = {
            a.column for a in aggregates.values() if isinstance(a, Avg) and _fills_a_word(self._types[a.column])
        }
        """The averages of these could not do with a sum of 64 bits."""
        self.accumulators = self._choose()
        self.distinct_columns = tuple(
            dict.fromkeys(a.column for a in aggregates.values() if isinstance(a, CountDistinct))
        )
        self.partials = tuple(a for a in self.accumulators if a.kind in _PARTIAL_KINDS)
        """Those whose values are sent where rows are combined before: the others are worked out from the weights."""
        self._partial_names = self._name_partials()
        self._position = {accumulator.name: n for n, accumulator in enumerate(self.accumulators)}

        self.initial: Words = np.array([accumulator.initial for accumulator in self.accumulators], np.int64)
        """A row of accumulators that have seen nothing."""
        self._reach: Counter[str] = Counter()
        """By column: no sum of its integers is further from zero."""
        self._merge_codes: Words = np.array([accumulator.merge_code for accumulator in self.accumulators], np.int64)

    @property
    def input_columns(self) -> tuple[str, ...]:
        return tuple(self._types)

    def fields(self) -> list[pa.Field]:
        return [pa.field(name, _result_type(a, self._types)) for name, a in self._aggregates.items()]

    def position(self, kind: Kind, column: str | None = None) -> int:
        return self._position[Accumulator(kind, column).name]

    def accumulate(self, batch: pa.RecordBatch, rows: Rows, matrix: Matrix) -> None:
        """Add each row of the batch to the row of the matrix that `rows` has for it; rows may have been combined
        before. Distinct values are not counted here."""
        weights = weights_of(batch)
        if weights is None:
            count_rows(rows, matrix, 0)
        else:
            count_weights(rows, weights, matrix, 0)
        floats = matrix.view(np.float64)
        read: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]] = {}
        for number, accumulator in enumerate(self.accumulators):
            column = accumulator.column
            if column is None or accumulator.kind in (Kind.DISTINCT, Kind.CARRY):
                continue
            name = column if weights is None else self._partial_names[accumulator.name]
            if name not in read:
                read[name] = numbers_of(batch.column(name))
            values, valid = read[name]
            if accumulator.kind is Kind.NULLS:
                if weights is None:
                    count_invalid(rows, valid, matrix, number)
                else:
                    count_invalid_weights(rows, valid, weights, matrix, number)
            elif accumulator.kind is Kind.SUM and not accumulator.is_float:
                self._add_integers(accumulator, rows, values, valid, matrix, number)
            else:
                if accumulator.kind is not Kind.SUM:
                    values = _flip_unsigned(values, self._types[column])
                target = floats if accumulator.is_float else matrix
                _UPDATES[accumulator.kind, accumulator.is_float](rows, values, valid, target, number)

    def _add_integers(
        self, accumulator: Accumulator, rows: Rows, values: Words, valid: Any, matrix: Matrix, number: int
    ) -> None:
        """Sums are looked at one by one only when all that was ever added might have been too much for one of them."""
        column, unsigned = accumulator.column or "", accumulator.is_unsigned
        self._reach[column] += len(values) * reach_of(values)
        if self._reach[column] < 2**63 and not unsigned:
            add_values(rows, values, valid, matrix, number)
        elif (add_unsigned if unsigned else add_signed)(rows, values, valid, matrix, number):
            if not accumulator.carries:
                raise self._too_large(column)
            count_carries(rows, values, valid, matrix, number, not unsigned)

    def sums_fit(self, batch: pa.RecordBatch) -> bool:
        """Whether 64 bits are surely enough for the sums of the batch and of all that was added since `start_anew`."""
        for accumulator in self.accumulators:
            if accumulator.kind is Kind.SUM and not accumulator.is_float:
                column = accumulator.column or ""
                values, _ = numbers_of(batch.column(column))
                if accumulator.is_unsigned and int(values.min()) < 0:  # read as signed
                    return False
                if self._reach[column] + len(values) * reach_of(values) >= 2**63:
                    return False
        return True

    def start_anew(self) -> None:
        """What was added so far is in none of the matrices that will be added to from now on."""
        self._reach.clear()

    def merge(self, source: Matrix, source_rows: Rows, matrix: Matrix, rows: Rows) -> None:
        """Add rows of `source` to rows of `matrix`, pair by pair; distinct values as above."""
        if merge_rows(source, source_rows, matrix, rows, self._merge_codes):
            raise self._too_large(*(a.column for a in self._aggregates.values() if isinstance(a, Sum)))

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
        """The way back from `stored`. What earlier versions have written has no carries."""
        self._check_carries(batch)
        matrix = np.empty((batch.num_rows, len(self.accumulators)), np.int64)
        for number, name in enumerate(self.stored_names):
            if self.accumulators[number].kind is Kind.CARRY and name not in batch.schema.names:
                matrix[:, number] = 0
            else:
                matrix[:, number] = batch.column(name).to_numpy().view(np.int64)
            accumulator = self.accumulators[number]
            if accumulator.kind is Kind.SUM and not accumulator.is_float and accumulator.column is not None:
                self._reach[accumulator.column] += _reach_together(matrix[:, number])
        return matrix

    def _check_carries(self, batch: pa.RecordBatch) -> None:
        """A sum in the place of an average has no carry to take over: without it, it would be another number."""
        known = self.stored_names
        for name in batch.schema.names:
            column = name.removeprefix("acc.carry(").removesuffix(")")
            dropped = column != name and name not in known and f"acc.sum({column})" in known
            if dropped and batch.column(name).to_numpy().any():
                raise self._too_large(column)

    def partial_fields(self) -> list[pa.Field]:
        """What rows combined before have instead of the aggregates' columns."""
        return [pa.field(partial.partial_name, self._partial_type(partial)) for partial in self.partials]

    def partials_of_rows(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The same of rows that were not combined: each is its own sum, least and greatest."""
        return [batch.column(partial.column).cast(self._partial_type(partial)) for partial in self.partials]

    def partials_of_groups(self, matrix: Matrix) -> list[pa.Array]:
        """The same of groups, one in each row of the matrix: null where all values are. The sums must have fitted."""
        arrays = []
        for partial in self.partials:
            column = partial.column or ""
            words, type_ = self._column(matrix, partial.kind, column), self._partial_type(partial)
            valid = matrix[:, 0] > matrix[:, self.position(Kind.NULLS, column)]
            if partial.kind is not Kind.SUM:
                words = _flip_unsigned(words, type_)
            arrays.append(array_of_words(words, valid, type_))
        return arrays

    def _partial_type(self, partial: Accumulator) -> pa.DataType:
        column = partial.column or ""
        return _result_type(Sum(column), self._types) if partial.kind is Kind.SUM else self._types[column]

    def _name_partials(self) -> dict[str, str]:
        """By accumulator: the column of combined rows that is looked at for it. A group's values are null together,
        so any of them tells how many nulls there were."""
        names = {partial.name: partial.partial_name for partial in self.partials}
        for partial in self.partials:
            names[Accumulator(Kind.NULLS, partial.column).name] = partial.partial_name
        return names

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
            if column in self._carried and self._column(matrix, Kind.CARRY, column).any():
                raise self._too_large(column)
            return array_of_words(sums, valid, _result_type(aggregate, self._types))
        totals: npt.NDArray[Any] = sums.view(np.float64) if pa.types.is_floating(type_) else sums
        if column in self._carried:
            low = sums.view(np.uint64) if pa.types.is_uint64(type_) else sums
            totals = low + self._column(matrix, Kind.CARRY, column) * 2.0**64
        with np.errstate(invalid="ignore", divide="ignore"):
            return array_of_words((totals / counts).view(np.int64), valid, pa.float64())

    def _column(self, matrix: Matrix, kind: Kind, column: str) -> Words:
        """A copy, even where the matrix has no other column: what goes out must not change any more."""
        return matrix[:, self.position(kind, column)].copy()

    def _too_large(self, *columns: str) -> SumTooLarge:
        named = ", ".join(dict.fromkeys(f"Sum({column!r})" for column in columns))
        return SumTooLarge(
            f"operator {self.operator!r}: {named} has become too large for 64 bits. Cast the column to double before, "
            "or sum it over fewer rows"
        )

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
        type_ = self._types[column]
        nulls = Accumulator(Kind.NULLS, column)
        if kind is not Kind.SUM:
            return (nulls, Accumulator(kind, column, pa.types.is_floating(type_)))
        carries = column in self._carried
        sums = Accumulator(kind, column, pa.types.is_floating(type_), pa.types.is_uint64(type_), carries)
        return (nulls, sums, Accumulator(Kind.CARRY, column)) if carries else (nulls, sums)


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


def _reach_together(sums: Words) -> int:
    """However these are merged, none of it is further from zero; rounded up, since floats are not exact."""
    return int(np.abs(sums.astype(np.float64)).sum() * 1.01) + 1


def _fills_a_word(type_: pa.DataType) -> bool:
    return bool(pa.types.is_int64(type_) or pa.types.is_uint64(type_))


def _columns_of(aggregates: Mapping[str, Aggregate]) -> list[str]:
    return list(dict.fromkeys(a.column for a in aggregates.values() if not isinstance(a, Count)))


def _result_type(aggregate: Aggregate, types: Mapping[str, pa.DataType]) -> pa.DataType:
    if isinstance(aggregate, Count | CountDistinct):
        return pa.int64()
    if isinstance(aggregate, Avg):
        return pa.float64()
    type_ = types[aggregate.column]
    if isinstance(aggregate, Sum):
        if pa.types.is_floating(type_):
            return pa.float64()
        return pa.uint64() if pa.types.is_uint64(type_) else pa.int64()
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
