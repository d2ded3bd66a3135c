"""What the receiver keeps over a kill: the notifications that it took, and what became of its units."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TAKEN = "taken.jsonl"
"""A line for each notification: `at` (seconds since 1970), `unit`, `key`, `status`, `path`. Null: the call had no such header."""

UNITS = "units.jsonl"
"""A line for each change of a unit: `at`, `unit`, and `is`: `announced`, `forgotten` or `refused`."""

CALLS = "calls.jsonl"
"""A line for each call for a notification that was taken already, or whose answer is lost or late: `at`, `unit`, `key`, and `is`.

`is` is `repeated`: the key had been taken; `unanswered`: it is taken, and the connection breaks, or the answer is late.
"""


class Journal:
    """A file of JSON lines. A line that was added is there after a SIGKILL at any moment."""

    def __init__(self, path: Path) -> None:
        """Open the file, and cut off an unfinished last line: its sender had no answer."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._descriptor, path.read_bytes().rfind(b"\n") + 1)

    def add(self, line: object) -> None:
        """Write a line to the kernel, which keeps it if the process is killed; it is not synced to the disk."""
        os.write(self._descriptor, json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_lines(path: Path) -> Iterator[Any]:
    """Yield the whole lines of a journal, which may be in use; none if there is no file."""
    if path.exists():
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(line)
