"""Target `position-metadata`: the metadata of a committed offset is ours exactly as written, or counts as another program's."""

from pathlib import Path
from random import Random
from uuid import UUID

from fuzz.scratch import scratch
from fuzz.unsynced_files import UnsyncedFiles

from guardian.ports import TransportRefused
from guardian.positions import DoneOffsets, decode, encode
from guardian.takeover import Metadata, find_metadata
from notification_service.connectors.files.input_archive import ArchivedMarker
from notification_service.connectors.kafka.core.offset_metadata import OffsetMetadata
from notification_service.connectors.kafka.core.offset_metadata import find_metadata as find_offset_metadata

TOKENS = (b"resequencer/1 ", b"resequencer/2 ", b" 4 ", b'["0123456789abcdef",17,42]', b"_" * 20, b"9" * 20, b'{"format":1,"to":')
POSITION = 1_000

_directory = scratch()
_BEGINNING = ArchivedMarker(Path(_directory.name) / "partition-0.jsonl", UnsyncedFiles())


def check(data: bytes) -> None:
    """Check the bytes as a Kafka offset's metadata, a position's metadata, done offsets, and a file `partition-N.archived`.

    * Each is read, or no metadata of ours (None), or refused by name; an offset or a count is never negative.
    * What was read and is written again is the same text; what is written is read as it was.
    """
    text = data.decode("utf-8", "replace")
    _check_offset_metadata(text)
    _check_metadata(text)
    done = decode(POSITION, text)
    assert done is None or encode(POSITION, done) == text
    _check_done(_anything_done(data[:200]))
    _check_beginning(data)


def _check_offset_metadata(text: str) -> None:
    try:
        found = find_offset_metadata(text, "T-0")
    except TransportRefused as error:
        _check_refusal(error)
        return
    if found is not None:
        assert found.partitions > 0
        assert len(text) > 4_096 or find_offset_metadata(found.encode("T-0"), "T-0") == found


def _check_refusal(error: TransportRefused) -> None:
    assert error.what == "T-0"
    assert "format" in error.problem


def _check_metadata(text: str) -> None:
    found = find_metadata(text)
    assert found is None or find_metadata(found.encode()) == found
    assert found is None or all(0 <= each < 2**63 for each in (found.commit, found.published))


def _anything_done(data: bytes) -> DoneOffsets:
    """Return done offsets behind gaps whose lengths come from the bytes."""
    undone, at = [], POSITION
    for gap, length in zip(data[::2], data[1::2], strict=False):
        start = at + gap * gap + (1 if undone else 0)
        undone.append(range(start, start + length + 1))
        at = undone[-1].stop
    return DoneOffsets(at + len(data) % 7, tuple(undone))


def _check_done(done: DoneOffsets) -> None:
    text = encode(POSITION, done)
    assert (
        decode(POSITION, text) == done if text else done.end <= POSITION or not any(map(done.is_done, range(POSITION, done.end)))
    )


def _check_beginning(data: bytes) -> None:
    _BEGINNING.path.write_bytes(data)
    try:
        offset = _BEGINNING.offset()
    except TransportRefused as error:
        _check_file_refusal(error)
        return
    assert offset >= 0
    _BEGINNING.move_to(offset)
    assert _BEGINNING.offset() == offset


def _check_file_refusal(error: TransportRefused) -> None:
    assert error.what == str(_BEGINNING.path)


def seeds() -> list[bytes]:
    rng = Random(1)
    undone = [range(at, at + rng.choice((1, 1, 2, 50))) for at in range(POSITION, POSITION + 5_000, rng.choice((60, 99)))]
    texts = [encode(POSITION, DoneOffsets(9_000, tuple(undone[:count]))) for count in (1, 3, 40)]
    ours = Metadata("0123456789abcdef", 17, 4_711).encode()
    return [
        *(text.encode() for text in (*texts, ours, OffsetMetadata(UUID(int=5), 4, ours).encode("T-0"))),
        b'{"format":1,"to":4711}\n',
        bytes(range(64)),
    ]
