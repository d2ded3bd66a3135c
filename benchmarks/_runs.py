"""Makes archived runs of the service: one real run on a few hundred payments, and any number of variations of it.

Each variation has other names, message ids, notification ids, positions and instants, and every report names its own payment. The
audit checks that they are as the service would have made them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks._worker import in_process, run_through
from benchmarks._workload import ENVELOPES_PER_UNIT, SEED, TOPIC, line_of, made
from guardian.headers import ENVELOPE_ID, NOTIFICATION_ID, SOURCE_POSITION
from notification_service.connectors.line_format import Line
from resequencer.clock import Instant, instant_text
from resequencer.notification import notification_id
from resequencer.record import Headers, Origin, Partition

UNITS = 250
PARTITIONS = 4
_FIRST_AT: Instant = 1_774_742_400_000
_RUN_MS = 10_000
_NAME = b"sim-%d-" % SEED
_MESSAGE, _ORIGINAL_MESSAGE = b'"MsgId":"%b"', b'"OrgnlMsgId":"%b"'


class Row(NamedTuple):
    """A row with the columns of the archive."""

    partition: int
    offset: int
    timestamp: Instant
    key: bytes
    value: bytes
    headers: Headers


class Received(NamedTuple):
    """An input record. `message` is the payment's message id if the record holds it."""

    unit: bytes
    value: bytes
    headers: Headers
    message: bytes


class Published(NamedTuple):
    """A notification, with the index of its record and of its process object."""

    unit: bytes
    value: bytes
    headers: dict[str, bytes]
    record: int
    index: int
    message: bytes


class Run(NamedTuple):
    """The input records and the notifications of a run, each in order."""

    received: list[Received]
    published: list[Published]


def one_run() -> Run:
    """Run the simulator's payments, out of order and some of them twice, through the service's own core."""
    with made(round(UNITS * ENVELOPES_PER_UNIT), window=200) as workload, TemporaryDirectory() as directory:
        lines = workload.read()
        cycle, transport = in_process(lines, Path(directory))
        run_through(cycle, len(lines))
    received, places, offset = list[Received](), dict[int, int](), 0
    for line in lines:
        read = line_of(line)
        assert read.key is not None
        places[offset], offset = len(received), offset + len(line)
        received.append(Received(read.key, read.value, read.headers, _text(read.value, b'"MsgId":"')))
    messages = {each.unit: each.message for each in received if each.message}
    return Run(received, [_published(line_of(line), places, messages) for line in transport.output])


def received_of(run: Run, number: int) -> Iterator[Row]:
    """Yield the records of the run with this number."""
    name, (partition, before, at) = b"run-%d-" % number, _place(run.received, number)
    for offset, each in enumerate(run.received):
        value = each.value.replace(_NAME, name)
        if each.message:
            value = value.replace(_MESSAGE % each.message, _MESSAGE % _other(each.message, number))
        yield Row(partition, before + offset, at, each.unit.replace(_NAME, name), value, each.headers)


def published_of(run: Run, number: int) -> Iterator[Row]:
    """Yield the notifications of the run with this number."""
    name, (partition, before, at) = b"run-%d-" % number, _place(run.received, number)
    _, first, _ = _place(run.published, number)
    for offset, each in enumerate(run.published):
        unit, envelope = each.unit.replace(_NAME, name), each.headers[ENVELOPE_ID].replace(_NAME, name)
        row = _notified(each, unit, envelope, partition, before + each.record, first + offset, at + 1_000)
        original = _ORIGINAL_MESSAGE % each.message
        yield row._replace(value=row.value.replace(original, _ORIGINAL_MESSAGE % _other(each.message, number), 1))


def received_of_one_unit(run: Run, envelopes: int) -> Iterator[Row]:
    """Yield the records of one unit in a partition of its own; from the second on they come in swapped pairs."""
    first, second = _templates(run)
    yield Row(PARTITIONS, 0, _FIRST_AT, first.unit, first.value, first.headers)
    sequence, identity = _sequence(second.value), _text(second.value, b'"uniqueId":"')
    for offset in range(1, envelopes):
        number = min(offset + 2, envelopes) if offset % 2 else offset
        value = second.value.replace(b'"sequence":%b,' % sequence, b'"sequence":%d,' % number)
        yield Row(PARTITIONS, offset, _FIRST_AT, second.unit, value.replace(identity, b"one|%d" % number), second.headers)


def published_of_one_unit(run: Run, envelopes: int) -> Iterator[Row]:
    """Yield the notifications of that unit in the order of their numbers."""
    first, second = (_notification_of(run, each) for each in _templates(run))
    yield _notified(first, first.unit, first.headers[ENVELOPE_ID], PARTITIONS, 0, 0, _FIRST_AT)._replace(partition=0)
    for number in range(2, envelopes + 1):
        offset = number - 2 if number % 2 else min(number, envelopes - 1)
        row = _notified(second, second.unit, b"one|%d" % number, PARTITIONS, offset, number - 1, _FIRST_AT)
        yield row._replace(partition=0)


def _templates(run: Run) -> tuple[Received, Received]:
    """Return the first envelope of a unit, which carries the payment, and another one."""
    notified = {each.record for each in run.published}
    first = next(e for at, e in enumerate(run.received) if e.message and at in notified and _sequence(e.value) == b"1")
    others = (e for at, e in enumerate(run.received) if e.unit == first.unit and not e.message and at in notified)
    return first, next(others)


def _notification_of(run: Run, received: Received) -> Published:
    return next(each for each in run.published if run.received[each.record] is received)


def _notified(published: Published, unit: bytes, envelope: bytes, partition: int, record: int, offset: int, at: Instant) -> Row:
    identity = notification_id(unit.decode(), envelope.decode(), published.index).encode()
    position = str(Origin(Partition(TOPIC, partition), record)).encode()
    headers = published.headers | {NOTIFICATION_ID: identity, ENVELOPE_ID: envelope, SOURCE_POSITION: position}
    value = published.value.replace(published.headers[NOTIFICATION_ID], identity, 1)
    value = value.replace(_text(value, b'"CreDtTm":"'), instant_text(at).encode(), 1)
    return Row(partition, offset, at, unit, value, tuple(headers.items()))


def _published(line: Line, places: dict[int, int], messages: dict[bytes, bytes]) -> Published:
    assert line.key is not None
    headers = dict(line.headers)
    names = line.key.decode(), headers[ENVELOPE_ID].decode()
    index = next(at for at in range(100) if notification_id(*names, at).encode() == headers[NOTIFICATION_ID])
    origin = Origin.find(headers[SOURCE_POSITION].decode())
    assert origin is not None
    record = places[origin.offset]
    return Published(line.key, line.value, headers, record, index, messages[line.key])


def _place(of_run: Sequence[object], number: int) -> tuple[int, int, Instant]:
    """Return the partition, the first offset and the instant of a run."""
    return number % PARTITIONS, number // PARTITIONS * len(of_run), _FIRST_AT + number // PARTITIONS * _RUN_MS


def _other(message: bytes, number: int) -> bytes:
    """Return another message id, no longer than ISO 20022 allows."""
    ending = b"-%d" % number
    return message[: 35 - len(ending)] + ending


def _text(value: bytes, opening: bytes) -> bytes:
    """Return the text up to the next quotation mark; empty if `opening` does not occur."""
    _, opened, remainder = value.partition(opening)
    return remainder.partition(b'"')[0] if opened else b""


def _sequence(value: bytes) -> bytes:
    return value.partition(b'"sequence":')[2].partition(b",")[0]
