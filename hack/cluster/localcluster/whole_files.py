"""Files that others read at any moment: they are there as a whole, or as they were before."""

from __future__ import annotations

from pathlib import Path


def write_whole(file: Path, content: bytes, mode: int = 0o644) -> None:
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=mode)
    part.write_bytes(content)
    part.replace(file)
