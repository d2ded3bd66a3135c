"""Target `dead-letters`: listing and requeueing dead letters does no harm, whatever the output directory contains."""

from contextlib import closing
from pathlib import Path
from shutil import rmtree

from fuzz.scratch import scratch
from fuzz.simulated import simulated_lines
from fuzz.unsynced_files import UnsyncedFiles

from guardian.pending_output import output_record
from guardian.ports import Channel, OutputRecord, TransportRefused
from notification_service.connectors.dead_letters.actions import Requeueing, StoredDeadLetter
from notification_service.connectors.dead_letters.decisions import choose, why_not_requeue
from notification_service.connectors.dead_letters.port import Signature
from notification_service.connectors.files.dead_letters import ActionsFile, DeadLettersFile
from notification_service.connectors.files.requeue import Requeue
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, decode_line, encode_line
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.record import Cut, Origin, Partition, Record

SEPARATOR = b"\n\n"
TOKENS = (
    *(SEPARATOR, b'"number":"IPF-0#1"', b'"dead-letter-reason":', b'"undecodable"', b'"dead-letter-at":'),
    *(b'"dead-letter-source-position":', b"IPF-0@17", b'"action":"requeueing"'),
    *(b"0001-01-01T00:00:00", b"9999-12-31T23:59:59-23:59", b"2026-03-28T23:33:55Z"),
)
INPUT = b'{"value":1}\n'

_root = scratch()
_OUT, _IN = Path(_root.name) / "out", Path(_root.name) / "in"


def check(data: bytes) -> None:
    """Check the bytes as the file of dead letters and, behind a separator, the file of actions.

    * Every line is a dead letter or passed over; an actions' file with a line that is none is refused by name.
    * What can be requeued is requeued once: its record stands in the input as it was, but for the mark, and everything that
      stood there before still does. Another order then finds nothing to do.
    """
    _begin(data)
    files = UnsyncedFiles()
    letters, actions = DeadLettersFile(_OUT, files), ActionsFile(_OUT, files)
    found = list(letters.letters())
    for each in found:
        _check_letter(each)
    with closing(actions):
        try:
            begun = [each for each in actions.last().values() if isinstance(each, Requeueing)]
        except TransportRefused as error:
            _check_refusal(error, actions)
            return
        settings = FileSettings("IPF", _IN, _OUT)
        requeue = Requeue(settings, letters, actions, files, lambda: Signature("me", "2026-03-28T23:33:55.000Z"))
        ended = [*requeue.resume()]
        assert {each.number for each in ended} == {each.number for each in begun}
        chosen = choose(found, actions.last(), why_not_requeue).chosen
        wanted = [each for each in found if chosen.get(each.number) == each.letter_id]
        done = [*requeue.requeue({each.letter_id: each for each in wanted}.values())]
        _check_input({each.number: each for each in wanted}, [each.number for each in done if each.position is not None])
        assert not [each for each in done if each.position is not None and each.number in _still_new(found, actions)]


def _check_refusal(error: TransportRefused, actions: ActionsFile) -> None:
    assert error.what == str(actions.path)


def _still_new(found: list[StoredDeadLetter], actions: ActionsFile) -> set[str]:
    return set(choose(found, actions.last(), why_not_requeue).chosen)


def _begin(data: bytes) -> None:
    for directory in (_OUT, _IN):
        rmtree(directory, ignore_errors=True)
        directory.mkdir()
    dead, _, actions = data.partition(SEPARATOR)
    (_OUT / f"{Channel.DEAD_LETTERS}.jsonl").write_bytes(dead)
    if actions:
        (_OUT / "dead-letters-actions.jsonl").write_bytes(actions)
    (_IN / "partition-0.jsonl").write_bytes(INPUT)


def _check_letter(stored: StoredDeadLetter) -> None:
    assert stored.number.count("#") >= 1
    record = stored.letter.record
    assert str(record.origin).count("@") >= 1
    assert stored.headers[: len(record.headers)] == record.headers
    assert stored.unit is None or isinstance(stored.unit, str)


def _check_input(wanted: dict[str, StoredDeadLetter], numbers: list[str]) -> None:
    written = (_IN / "partition-0.jsonl").read_bytes()
    assert written.startswith(INPUT)
    lines = [decode_line(line) for line in written[len(INPUT) :].splitlines()]
    for number in numbers:
        record, number_header = wanted[number].letter.record, ("requeued-from", number.encode())
        headers = tuple(each for each in record.headers if each[0] not in ("requeued-from", "requeued-possible-duplicate"))
        if ("possible-duplicate", b"true") in wanted[number].headers[len(record.headers) :]:
            headers = (*headers, ("requeued-possible-duplicate", b"true"))
        assert lines.count(Line(record.value, record.key, (*headers, number_header))) == 1


def seeds() -> list[bytes]:
    """Yield dead letters as the service writes them, alone and with actions on them."""
    partition = Partition("IPF", 0)
    records = [Record(Origin(partition, at), line, b"\xff" if at % 3 else None) for at, line in enumerate(simulated_lines()[:12])]
    records.append(Record(Origin(partition, 99), b"x" * 100, headers=(("a", b"1"),), cut=Cut(10**7, "ab" * 32)))
    lines = [_line_of(number + 1, record) for number, record in enumerate(records)]
    actions = (
        b'{"action":"requeueing","number":"IPF-0#2","letter":"x","by":"me","at":"now","partition":0,"beyond":12}\n'
        b'{"action":"discarded","number":"IPF-0#1","letter":"x","by":"me","at":"now","because":"so"}\n'
        b'{"action":"editing","number":"IPF-0#3","letter":"x","by":"me","at":"now","partition":0,"beyond":12,'
        b'"because":"so","original_sha256":"ab","value_base64":"/w=="}\n'
    )
    return [b"".join(lines[:3]), b"".join(lines[-3:]), b"".join(lines[:2]) + SEPARATOR + actions, *lines]


def _line_of(number: int, record: Record) -> bytes:
    letter = DeadLetter(record, DeadLetterReason.UNDECODABLE, "not an envelope; send it again", 1_774_740_835_941)
    leaves: OutputRecord = output_record(number, letter, 0)
    return encode_line(Line(leaves.value, leaves.key, leaves.headers), number=f"IPF-0#{number}", verbatim=True)
