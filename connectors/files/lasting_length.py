"""How far a file that another service writes will stay as it is, by the positions of that service."""

from pathlib import Path

import msgspec

from connectors.files.errors import translated
from connectors.port import Channel

FACTS_FILE = "partition-0.jsonl"
"""The file to which the service writes its facts. Others beside it are written by whoever gives commands, and stay."""


class _Lengths(msgspec.Struct, gc=False):
    lengths: dict[str, int] = {}


_decode = msgspec.json.Decoder(_Lengths).decode


def facts_name(file: str) -> str:
    """Return the name of a file of facts among the lengths. Files of the output directory have no slash in their names."""
    return f"{Channel.FACTS}/{file}"


def find_lasting_length(positions: Path, name: str) -> int:
    """Return the length in bytes that `positions.json` tells of the output with this name; 0 without it, or if it is damaged.

    Lines behind that length may be cut off again, because their write or its sync failed, and others may take their place. The
    length only grows, but for a power cut that restores an older file: what was within the length before is still there.

    Raises:
        TransportUnavailable, TransportRefused: The file cannot be read.
    """
    with translated(positions):
        try:
            found = positions.read_bytes()
        except FileNotFoundError:
            return 0
    try:
        return max(0, _decode(found).lengths.get(name, 0))
    except (msgspec.DecodeError, RecursionError):
        return 0
