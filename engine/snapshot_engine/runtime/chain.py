"""A chain: the operators of one vertex, each handing its output to the next by a plain call."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_engine.graph.job_graph import OperatorNode
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Output, SourceOperator


class OperatorFailed(Exception):
    """An operator raised. Says which one; the cause carries the user's own frames."""

    def __init__(self, node: OperatorNode, doing: str = "") -> None:
        super().__init__(f"operator {node.name!r} (uid {node.uid}, {node.location}) failed {doing}".rstrip())
        self.node = node


class _ToNext:
    """The output of an operator that is not the last of its chain."""

    def __init__(self, following: Operator) -> None:
        self._following = following

    def emit(self, data: Data) -> None:
        if len(data):
            self._following.process(0, data)

    def emit_side(self, tag: str, data: Data) -> None:
        """Nobody reads this side output: planning ends the chain at an operator whose side outputs are read."""

    def watermark(self, timestamp: int) -> None:
        self._following.on_watermark(timestamp)

    def idle(self) -> None:
        self._following.on_idle()

    def round_end(self, round: int) -> None:
        self._following.on_round_end(round)


class Chain:
    """Opened once, then driven by its subtask."""

    def __init__(self, nodes: Sequence[OperatorNode], last_output: Output) -> None:
        self.nodes = nodes
        self.operators = [node.factory() for node in nodes]
        for operator, following in zip(self.operators, self.operators[1:], strict=False):
            operator.output = _ToNext(following)
        self.operators[-1].output = last_output
        self.head = self.operators[0]
        self.opened: Sequence[Operator] = ()
        """None of them where the subtask had finished at the restored checkpoint: there is nothing to ask or tell."""

    @property
    def source(self) -> SourceOperator:
        assert isinstance(self.head, SourceOperator)
        return self.head

    def open(self, contexts: Sequence[OperatorContext]) -> None:
        """From the last to the first, so that whatever an operator emits while it opens finds the next one ready."""
        for operator, node, context in reversed(list(zip(self.operators, self.nodes, contexts, strict=True))):
            try:
                operator.open(context)
            except Exception as error:
                raise OperatorFailed(node, "while it was opened or its state restored") from error
        self.opened = self.operators

    def end_input(self) -> None:
        for operator in self.operators:
            operator.end_input()

    @property
    def unfinished(self) -> bool:
        """Whether an operator has left something to do: nothing else may come in before `go_on` has done it all."""
        return any(operator.unfinished for operator in self.operators)

    def go_on(self) -> None:
        """A further portion. The last operator first: what those before it put out would come to it otherwise."""
        for operator in reversed(self.operators):
            if operator.unfinished:
                operator.go_on()
                return

    @property
    def has_timers(self) -> bool:
        return any(operator.has_timers for operator in self.operators)

    def next_deadline(self) -> int | None:
        deadlines = [deadline for operator in self.operators if (deadline := operator.next_deadline()) is not None]
        return min(deadlines, default=None)

    def on_deadline(self, now: int) -> None:
        for operator in self.operators:
            deadline = operator.next_deadline()
            if deadline is not None and deadline <= now:
                operator.on_deadline(now)

    def close(self) -> list[Exception]:
        """Close all, whatever some of them raise."""
        errors: list[Exception] = []
        for operator in self.operators:
            try:
                operator.close()
            except Exception as error:
                errors.append(error)
        return errors
