"""How far a file that another service writes will stay as it is, by the positions of that service."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from guardian.ports import Channel
from notification_service.connectors.files.errors import translated

FACTS_FILE = "partition-0.jsonl"
"""The file to which the service writes its facts. Others beside it are written by whoever gives commands, and stay."""


class _Lengths(msgspec.Struct, gc=False):
    lengths: dict[str, int] = {}
    before: dict[str, int] = {}


_decode = msgspec.json.Decoder(_Lengths).decode


def facts_name(file: str) -> str:
    """Return the name of a file of facts among the lengths. Files of the output directory have no slash in their names."""
    return f"{Channel.FACTS}/{file}"


class Written(NamedTuple):
    """How many bytes the files of an output had before its present one, and how many that one has."""

    before: int
    length: int


def find_written(positions: Path, name: str) -> Written | None:
    """Return what `positions.json` tells of the output with this name; None without it, or if it is damaged.

    Raises:
        TransportUnavailable, TransportRefused: The file cannot be read.
    """
    with translated(positions):
        try:
            found = _decode(positions.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError, RecursionError):
            return None
    return Written(found.before.get(name, 0), found.lengths[name]) if name in found.lengths else None


def find_lasting_length(positions: Path, name: str) -> int:
    """Return the length in bytes that `positions.json` tells of the output with this name; 0 without it, or if it is damaged.

    Lines behind that length may be cut off again, because their write or its sync failed, and others may take their place. The
    length only grows, but for a power cut that restores an older file: what was within the length before is still there.

    Raises:
        TransportUnavailable, TransportRefused: The file cannot be read.
    """
    written = find_written(positions, name)
    return 0 if written is None else max(0, written.length)
