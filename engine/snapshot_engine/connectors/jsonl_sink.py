"""JSON lines by two-phase commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.staged_files import StagedFileSink
from snapshot_engine.connectors.text_rows import json_lines


class JsonLinesSink(StagedFileSink):
    """One file per subtask and checkpoint in `folder`, a JSON value per line. Takes plain Python values too."""

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder, JsonLinesFormat())


@dataclass(frozen=True)
class JsonLinesFormat:
    suffix: str = ".jsonl"

    def create(self, path: Path, schema: pa.Schema) -> JsonLinesFileWriter:
        return JsonLinesFileWriter(path)


class JsonLinesFileWriter:
    def __init__(self, path: Path) -> None:
        self._file: Any = path.open("w", encoding="utf-8", newline="\n")

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.writelines(f"{line}\n" for line in json_lines(batch))

    def close(self) -> None:
        self._file.close()
