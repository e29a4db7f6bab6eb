"""The head of a loop: where what comes back meets what comes in. It changes nothing; the runtime keeps its queues."""

from __future__ import annotations

from snapshot_engine.operators.operator import Data, Operator


class LoopHeadOperator(Operator):
    def process(self, port: int, data: Data) -> None:
        self.output.emit(data)
