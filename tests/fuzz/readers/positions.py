"""Target `positions`: any `positions.json`, and any metadata in it, is read or reported as damaged."""

import json
from pathlib import Path
from typing import Any

from fuzz.independent.json import NotJson, Number, read_json
from fuzz.scratch import scratch
from fuzz.unsynced_files import UnsyncedFiles

from guardian.ports import Position, TransportRefused
from guardian.takeover import Metadata, find_metadata
from notification_service.connectors.files.positions import Positions, PositionsFile
from resequencer.record import Partition

TOKENS = (b'"format":', b'"lengths":', b'"partitions":', b'"beyond":', b'"metadata":', b"[[1,9]]", b"[[5,1000000000000000]]")

_directory = scratch()
_FILE = PositionsFile(Path(_directory.name) / "positions.json", UnsyncedFiles())
_path = Path(_directory.name) / "positions.json"


def check(data: bytes) -> None:
    """Check the bytes as the file.

    * It is read, or damaged (None), or refused by a `TransportRefused` that names the file: only if it says another format.
    * What was read is what JSON says, no number of it is negative, and written it reads the same.
    * Its metadata, and the bytes themselves as metadata, are ours or not: nothing is raised.
    """
    _path.write_bytes(data)
    try:
        positions = _FILE.read()
    except TransportRefused as error:
        _check_refusal(error, data)
        return
    if positions is None:
        assert not _is_empty_one(data)
    else:
        _check_content(positions, _lenient(data))
        _check_round_trip(positions)
    find_metadata(data.decode("utf-8", "replace"))


def _check_refusal(error: TransportRefused, data: bytes) -> None:
    assert error.what == str(_path)
    assert _lenient(data)["format"] != 1


def _check_content(positions: Positions, document: Any) -> None:
    assert positions.lengths == document["lengths"]
    offsets = {(each["topic"], each["partition"]): (each["offset"], each["metadata"]) for each in document["partitions"]}
    assert {tuple(name): (each.offset, each.metadata) for name, each in positions.partitions.items()} == offsets
    numbers = [*positions.lengths.values(), *(each.offset for each in positions.partitions.values())]
    assert all(0 <= each < 2**63 for each in numbers)


def _check_round_trip(positions: Positions) -> None:
    _FILE.write(positions)
    assert _FILE.read() == positions
    for each in positions.partitions.values():
        metadata = find_metadata(each.metadata)
        assert metadata is None or find_metadata(metadata.encode()) == metadata


def _lenient(data: bytes) -> Any:
    """Read leniently: fields beside ours may have any encoding and any size."""
    return json.loads(data.decode("utf-8", "replace"), parse_int=lambda text: int(text[:4_000]))


def _is_empty_one(data: bytes) -> bool:
    """Return whether this is the service's file without any position."""
    try:
        return bool(read_json(data) == {"format": Number("1"), "lengths": {}, "partitions": []})
    except NotJson:
        return False


def seeds() -> list[bytes]:
    """Yield files as the service writes them: without, with one and with several partitions, and with output beyond positions."""
    metadata = Metadata("0123456789abcdef", 17, 4_711).encode()
    one = {Partition("IPF_PROCESSING_DATA", 0): Position(1_234, metadata, frozenset({5, 6, 7, 99}))}
    more = one | {Partition("a-b", 12): Position(0, "", frozenset())}
    written = [Positions({}, {}), Positions({"notifications.jsonl": 7}, one), Positions({"a": 1, "b": 2**40}, more)]
    return [_bytes_of(each) for each in written] + [metadata.encode()]


def _bytes_of(positions: Positions) -> bytes:
    _FILE.write(positions)
    return _path.read_bytes()
