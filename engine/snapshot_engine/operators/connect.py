"""Two keyed inputs into one function with one state."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_engine.operators.functions import CoProcessFunction
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.keyed_process import TimedOperator
from snapshot_engine.operators.operator import Data
from snapshot_engine.operators.stream_type import StreamType


class CoProcessOperator(TimedOperator):
    """Port 0 is the left input, port 1 the right one. Both keys must have the same types: rows meet by their hashes."""

    kind = "co-process"

    def __init__(
        self,
        function: CoProcessFunction,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        left: StreamType,
        right: StreamType,
        output: StreamType,
    ) -> None:
        readers = KeyReader(left_keys, left), KeyReader(right_keys, right)
        if readers[0].keys.types != readers[1].keys.types:
            raise TypeError(
                f"the left key is {', '.join(readers[0].keys.described())}, the right one "
                f"{', '.join(readers[1].keys.described())}: cast one of them"
            )
        readers[0].keys.columns += readers[1].keys.columns
        super().__init__(function, readers[0], output)
        self.left, self.right = left, right
        self._right_reader = readers[1]

    def process(self, port: int, data: Data) -> None:
        if port == 0:
            self.process_records(data, self.left, self.reader, self.function.process_left)
        else:
            self.process_records(data, self.right, self._right_reader, self.function.process_right)
