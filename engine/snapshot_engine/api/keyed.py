"""A stream whose rows of one key come together: what state belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snapshot_engine.api import stateful as steps
from snapshot_engine.api.schemas import SchemaLike
from snapshot_engine.api.stream import DataStream
from snapshot_engine.graph.building import Input, Upstream, add_operator
from snapshot_engine.graph.columns import MissingColumn, require_columns
from snapshot_engine.graph.job_graph import Partitioning
from snapshot_engine.graph.logical import EdgeTraits, Step
from snapshot_engine.operators.stream_type import HIDDEN_KEY, StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.windowed import WindowedStream
    from snapshot_engine.api.windows import Window
    from snapshot_engine.operators.aggregates import Aggregate


class KeyedStream(DataStream):
    """What is added next gets all rows of a key in one subtask, and may keep state for it."""

    def __init__(self, env: Any, end: Input, keys: tuple[str, ...]) -> None:
        super().__init__(env, end)
        self._keys = keys
        self._key_function: Callable[[Any], Any] | None = None

    def reduce(self, fn: Callable[[Any, Any], Any]) -> DataStream:
        """Fold each record into what its key had before, `fn(old, new)`, and put the result out."""
        return self._keyed("reduce", lambda input: steps.reduce_records(fn, self._keys, input))

    def aggregate(self, **aggregates: Aggregate) -> DataStream:
        """Running totals: for every batch, the updated row of each key in it."""
        return self._keyed("aggregate", lambda input: steps.aggregate(aggregates, self._keys, input))

    def process(self, function: Any, *, schema: SchemaLike | None = None) -> DataStream:
        """A KeyedProcessFunction (by record) or BatchKeyedProcessFunction, with state and timers."""
        return self._keyed(
            f"process {type(function).__name__}",
            lambda input: steps.process(function, self._keys, schema, input),
        )

    def window(self, window: Window) -> WindowedStream:
        """Group the rows of each key by event time: Tumbling, Sliding or Session."""
        from snapshot_engine.api.windowed import WindowedStream

        return WindowedStream(self, window, self._keys)

    def _keyed(self, kind: str, build: Callable[..., Step]) -> DataStream:
        return self._after(add_operator(self.env.graph, kind, [self._end], build, keyed=True))


def key_stream(stream: DataStream, keys: Sequence[Any]) -> KeyedStream:
    if len(keys) == 1 and callable(keys[0]):
        return _key_by_function(stream, keys[0])
    end = stream._end
    problem = _why_not_keys(keys, end.type)
    if problem:
        stream.env.graph.refuse_call("key_by", problem)
        return KeyedStream(stream.env, Input(end.upstreams, None), ())
    return KeyedStream(stream.env, hashed(end, tuple(keys)), tuple(keys))


def _key_by_function(stream: DataStream, fn: Callable[[Any], Any]) -> KeyedStream:
    """The key is worked out before the edge, so that rows can be sent by it; an exchange is meant for that
    edge."""
    before, exchange = _split_traits(stream._end)
    node = add_operator(stream.env.graph, "key_by", [before], lambda input: steps.extract_key(fn, input))
    end = Input((Upstream(node, None, exchange),), node.output)
    keyed = KeyedStream(stream.env, hashed(end, (HIDDEN_KEY,)), (HIDDEN_KEY,))
    keyed._key_function = fn
    return keyed


def _split_traits(end: Input) -> tuple[Input, EdgeTraits]:
    """What was said about the next edge: partitioning for the edge to the key function, exchange for the one
    after."""
    said = end.upstreams[0].traits
    after = EdgeTraits(exchange=said.exchange, budget_bytes=said.budget_bytes, location=said.location)
    return end.with_traits(exchange=None, budget_bytes=None), after


def hashed(end: Input, keys: tuple[str, ...]) -> Input:
    return end.with_traits(partitioning=Partitioning.HASH, key_columns=keys, already_keyed=False)


def _why_not_keys(keys: Sequence[Any], type: StreamType | None) -> str | None:
    if not keys:
        return "no key given: name columns, or give a function of the record"
    wrong = [key for key in keys if not isinstance(key, str)]
    if wrong:
        return f"{wrong[0]!r} is not a column's name: give names, or one function of the record"
    doubled = next((key for key in keys if keys.count(key) > 1), None)
    if doubled is not None:
        return f"it names column {doubled!r} twice: once is enough"
    if type is None:
        return None
    if type.plain:
        return (
            f"it names columns ({', '.join(keys)}), but the records have none: "
            "give a function of the record, or give the operator before it a schema"
        )
    try:
        require_columns(type.schema, keys)
    except MissingColumn as error:
        return str(error)
    return _why_no_key_types(keys, type)


def _why_no_key_types(keys: Sequence[str], type: StreamType) -> str | None:
    from snapshot_engine.state.key_codec import KeyCodec

    try:
        KeyCodec(keys, [type.schema.field(key).type for key in keys])
    except (ValueError, TypeError) as error:
        return str(error)
    return None
