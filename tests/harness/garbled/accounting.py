"""The expected fate of each record of an input, derived from the input alone, and the check whether it came true.

Every line that is not blank is one record, and every record has exactly one fate:

    records   = dead letters of what is no envelope + envelopes
    envelopes = handled + duplicates + conflicting duplicates          (once nothing waits any more)

The fate follows from an independent reading of the line and from the lines before it in its partition. The first envelope
with an id in its unit is handled. The same content again is a duplicate, another content is a conflicting duplicate.
The service counts its own records. If its counts are equal to these, each record had exactly one fate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fuzz.independent.envelope import Reading, read_envelope
from fuzz.independent.json import NotJson, TooDeep
from fuzz.independent.line import NotARecord, read_line

from notification_service.connectors.line_format import Line
from notification_service.events.format import DecodingSettings
from notification_service.events.identifiers import hash_id
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.simulator.generate.flows import STATUSES
from resequencer.dead_letter import DeadLetterReason as Reason
from resequencer.record import Headers, Origin, Partition, Record

MAX_BYTES = 5 * 1024 * 1024
TOPIC = "IPF_PROCESSING_DATA"
_OURS = ("dead-letter-reason", "dead-letter-error", "dead-letter-source-position", "dead-letter-at")
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r]*")
_decode = EnvelopeDecoder(DecodingSettings(needs_sequence=True, max_value_bytes=MAX_BYTES)).decode

Place = tuple[int, int]
"""The place where a line begins: partition and byte."""


def is_blank(line: bytes) -> bool:
    """Return whether a line without its newline is no record (docs/contract.md, section 10)."""
    return _BLANK.fullmatch(line) is not None


class Letter(NamedTuple):
    """A dead letter: its record as it came, and the reason."""

    record: Line
    reason: Reason


class Accounting:
    """Reads the input and output of a service that has ended, once, and fails at the first record with a wrong fate."""

    def __init__(self, in_directory: Path, out_directory: Path) -> None:
        self._in_directory = in_directory
        self._letters_file = out_directory / "dead-letters.jsonl"
        self._notifications_file = out_directory / "notifications.jsonl"
        self._contents: dict[bytes, bytes] = {}
        self.fates: Counter[str] = Counter()

    @property
    def records(self) -> int:
        return self.fates.total()

    def run(self) -> None:
        letters_at, notified = _index_letters(self._letters_file), _count_notifications(self._notifications_file)
        with self._letters_file.open("rb") as letters:
            for place, line in _lines(self._in_directory):
                at = letters_at.pop(place, None)
                fate, notifications = self._account(place, line, None if at is None else _letter_at(letters, at))
                assert notified.pop(place, 0) == notifications, (place, fate, line)
                self.fates[str(fate)] += 1
        assert not letters_at, f"dead letters of no record: {list(letters_at)[:3]}"
        assert not notified, f"notifications of no record: {list(notified)[:3]}"

    def _account(self, place: Place, line: bytes, letter: Letter | None) -> tuple[str, int]:
        """Check the fate of a record; return it, and the number of its notifications."""
        try:
            record = read_line(line)
        except TooDeep:
            # Whether this is a record depends on the depth of the stack; it is no envelope in either case.
            assert letter is not None, (place, line)
            assert letter.record.value == line or letter.record.value in line, (place, line)
            return letter.reason, 0
        except (NotJson, NotARecord):
            record = None
        if record is None:
            assert letter == Letter(Line(line), Reason.UNDECODABLE), (place, line, letter)
            return Reason.UNDECODABLE, 0
        reading = read_envelope(record.value, record.headers, needs_sequence=True, max_bytes=MAX_BYTES)
        if reading.reasons:
            assert letter is not None, (place, line, reading)
            assert letter.record == record, (place, line, letter)
            assert letter.reason in reading.reasons, (place, line, letter)
            return letter.reason, 0
        return self._account_envelope(place, record, reading, letter)

    def _account_envelope(self, place: Place, record: Line, reading: Reading, letter: Letter | None) -> tuple[str, int]:
        origin = Origin(Partition(TOPIC, place[0]), place[1])
        envelope = _decode(Record(origin, record.value, record.key, record.headers))
        assert isinstance(envelope, DataEnvelope), (place, record, envelope)
        identity = b"%d " % place[0] + hash_id(reading.unit) + envelope.id_hash
        known = self._contents.setdefault(identity, b"")
        if known == b"":
            assert letter is None, (place, record, letter)
            self._contents[identity] = envelope.digest
            return "handled", sum((flow, event) in STATUSES for _, _, event, flow, _ in reading.process)
        if known == envelope.digest:
            assert letter is None, (place, record, letter)
            return "duplicates", 0
        assert letter == Letter(record, Reason.CONFLICTING_DUPLICATE), (place, record, letter)
        return Reason.CONFLICTING_DUPLICATE, 0


def _lines(directory: Path) -> Iterator[tuple[Place, bytes]]:
    """Yield the line of each record without its newline. A file must end with a newline."""
    for file in sorted(directory.glob("partition-*.jsonl")):
        partition, offset = int(file.stem.rpartition("-")[2]), 0
        with file.open("rb") as lines:
            for line in lines:
                assert line.endswith(b"\n")
                if not is_blank(line[:-1]):
                    yield (partition, offset), line[:-1]
                offset += len(line)


def _index_letters(file: Path) -> dict[Place, int]:
    """Return the place of each record's dead letter in the file; a record has at most one."""
    found: dict[Place, int] = {}
    offset = 0
    with file.open("rb") as lines:
        for line in lines:
            place = _place_of(_read(line).headers, "dead-letter-source-position")
            assert place not in found, f"two dead letters of {place}"
            found[place] = offset
            offset += len(line)
    return found


def _letter_at(file: BinaryIO, at: int) -> Letter:
    file.seek(at)
    line = _read(file.readline())
    *theirs, _, _, _, _ = line.headers
    ours = line.headers[len(theirs) :]
    assert tuple(name for name, _ in ours) == _OURS, ours
    return Letter(Line(line.value, line.key, tuple(theirs)), Reason(ours[0][1].decode()))


def _count_notifications(file: Path) -> Counter[Place]:
    with file.open("rb") as lines:
        return Counter(_place_of(_read(line).headers, "source-position") for line in lines)


def _read(line: bytes) -> Line:
    record = read_line(line[:-1])
    assert record is not None
    return record


def _place_of(headers: Headers, name: str) -> Place:
    topic, _, place = [value.decode() for each, value in headers if each == name][-1].rpartition("-")
    assert topic == TOPIC, headers
    partition, _, offset = place.partition("@")
    return int(partition), int(offset)
