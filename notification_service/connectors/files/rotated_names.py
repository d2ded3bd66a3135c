"""The names of rotated outputs: `notifications.000001.jsonl`, `notifications.000002.jsonl`, … beside `notifications.jsonl`."""

import re
from pathlib import Path
from typing import NamedTuple

_DIGITS = 6


class Rotated(NamedTuple):
    """A rotated file. Numbers ascend in the order of writing; files that were taken away leave gaps."""

    number: int
    path: Path


def rotated_path(path: Path, number: int) -> Path:
    """Return the name that `path` gets as the `number`-th rotated file."""
    return path.with_name(f"{path.stem}.{number:0{_DIGITS}d}{path.suffix}")


def find_rotated(path: Path, *, after: int = 0) -> list[Rotated]:
    """Return the rotated files of `path` with a higher number than `after`, in the order of writing.

    Raises:
        OSError: The directory cannot be read.
    """
    name = re.compile(rf"{re.escape(path.stem)}\.([0-9]{{{_DIGITS},18}}){re.escape(path.suffix)}", re.ASCII)
    try:
        matches = [match for each in path.parent.iterdir() if (match := name.fullmatch(each.name))]
    except FileNotFoundError:
        return []
    return sorted(Rotated(int(match[1]), path.with_name(match[0])) for match in matches if int(match[1]) > after)
