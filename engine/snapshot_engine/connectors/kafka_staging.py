"""What a writer of the Kafka sink has staged, and the mark that says how much of it has been sent.

    <folder of the writer>/<name>-000007.arrow       prepared, perhaps sent
    <folder of the writer>/<name>-000006.arrow.sent  empty: this file and all before it have been sent

Kafka keeps that number too, and in the same transaction as the records; but it forgets it after a while (a week, if the
broker is not told otherwise), and it keeps it by topic. A checkpoint may be restored later than that, or with another
topic. A writer has one mark, which goes with its folder when no checkpoint names any of its files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from snapshot_engine.connectors.collect_sink import read_arrow_file
from snapshot_engine.connectors.protocols import Committable
from snapshot_engine.connectors.staged_files import STAGING, PreparedDataLost

_SENT = ".sent"


class StagedRecords:
    """One prepared file: the `number`-th of its writer."""

    def __init__(self, folder: Path, committable: Committable) -> None:
        self.file = folder / committable["staged"]
        *job, self.writer, _ = self.file.relative_to(folder / STAGING).parts
        vertex = self.writer.rsplit("-", 4)[0]
        self.sink = ".".join([*job, vertex])
        self.number = _number(self.file)

    def records(self) -> Iterator[tuple[bytes | None, bytes]]:
        try:
            batches = read_arrow_file(self.file)
        except FileNotFoundError:
            raise PreparedDataLost(
                f"{self.file} was prepared for a completed checkpoint and not sent yet, but it is gone: its rows are "
                "lost. Bring the staging folder back from a backup, or restore an older savepoint"
            ) from None
        for batch in batches:
            yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)


def marks_in(folder: Path) -> list[Path]:
    return list(folder.glob(f"*{_SENT}"))


def first_not_marked(folder: Path) -> int:
    """The number of the writer's first file of which no mark says that it has been sent."""
    return max((_number(mark) + 1 for mark in marks_in(folder)), default=0)


def mark_as_sent(staged: Sequence[StagedRecords]) -> None:
    """All of them are of one writer and have been sent. The mark is there before anything is removed."""
    newest = max(staged, key=lambda each: each.number)
    folder = newest.file.parent
    if newest.number >= first_not_marked(folder):
        _leave_mark(newest.file)
    for path in [
        *(each.file for each in staged),
        *(mark for mark in marks_in(folder) if _number(mark) < newest.number),
    ]:
        path.unlink(missing_ok=True)


def _leave_mark(file: Path) -> None:
    """By a rename, which a full disk does not hinder."""
    mark = file.with_name(file.name + _SENT)
    try:
        file.rename(mark)
        os.truncate(mark, 0)
    except FileNotFoundError:
        # Another committer was here at the same time, or an earlier version, which left no mark.
        with contextlib.suppress(FileNotFoundError):
            mark.touch()


def _number(path: Path) -> int:
    return int(Path(path.name.removesuffix(_SENT)).stem.rpartition("-")[2])
