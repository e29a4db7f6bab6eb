"""What operators with keyed state on records have in common: the life of their state, and how far event time is."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_engine.operators.function_context import collect_garbage_less_often
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.operator import Operator, OperatorContext, Snapshot, iterate_states
from snapshot_engine.operators.portions import Portions
from snapshot_engine.protocol.elements import MIN_WATERMARK
from snapshot_engine.state.record_state import RecordState, StateOwner


def restored_state(context: OperatorContext, kind: str, reader: KeyReader) -> RecordState:
    """The operator's state with all that the checkpoint has; its tables are not declared yet."""
    owner = StateOwner(
        context.uid, context.name, kind, context.key_groups, context.owned_key_groups(), context.incremental
    )
    state = RecordState(owner, reader.keys)
    state.restore(iterate_states(context.restored, kind), context.reader, rescaled=context.rescaled)
    return state


class KeyedOperator(Operator):
    """Subclasses declare their tables in `open_state`, before which everything restored has been read."""

    kind: str
    """What kind of state it is, in checkpoints."""

    def __init__(self, reader: KeyReader) -> None:
        self.reader = reader
        self.name = "?"
        self.watermark = MIN_WATERMARK

    def open(self, context: OperatorContext) -> None:
        collect_garbage_less_often()
        self.name = context.name
        self.clock = context.clock
        states = iterate_states(context.restored, self.kind)
        self.state = restored_state(context, self.kind, self.reader)
        self.watermark = min((state.meta["watermark"] for state in states), default=MIN_WATERMARK)
        self.open_state(context)
        self.state.all_declared()

    def open_state(self, context: OperatorContext) -> None:
        raise NotImplementedError

    def on_watermark(self, timestamp: int) -> None:
        self.watermark = timestamp
        self.output.watermark(timestamp)

    def snapshot(self, checkpoint: int) -> Snapshot | None:
        return self.state.freeze(checkpoint, {"watermark": self.watermark})

    def on_completed(self, checkpoint: int) -> None:
        self.state.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self.state.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        return self.state.size()


class PortionedOperator(KeyedOperator):
    """One that may have to call its function very often when time goes on."""

    def open(self, context: OperatorContext) -> None:
        self._portions = Portions(context.portion_seconds)
        super().open(context)

    def flush(self) -> None:
        """Put out what the user's function has emitted so far."""
        raise NotImplementedError

    def begin(self, work: Iterator[None]) -> None:
        """Do `work` in portions, whose output goes out with each of them."""
        self._portions.begin(work)
        self.flush()

    @property
    def unfinished(self) -> bool:
        return self._portions.left

    def go_on(self) -> None:
        self._portions.go_on()
        self.flush()

    def get_through(self) -> None:
        """To be called before records are processed. There is seldom anything left then: only where an operator before
        this one puts out several batches at once, with watermarks between them.
        """
        if self._portions.left:
            self._portions.finish()
            self.flush()
