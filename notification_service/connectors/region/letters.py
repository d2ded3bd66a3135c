"""What is sent instead of a record that the broker refuses for its size. Pure.

A notification becomes a dead letter. A dead letter is cut: first its value, then all that it does not need.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from guardian.headers import (
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_VALUE_LENGTH,
    POSSIBLE_DUPLICATE,
    SOURCE_POSITION,
    cut_headers,
    dead_letter_headers,
)
from guardian.ports import Channel, OutputRecord
from notification_service.connectors.kafka.core.records import BEGINNING_BYTES
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Cut


def smaller(record: OutputRecord, problem: str, now: Instant) -> Iterator[OutputRecord]:
    """Yield ever smaller records to send under the number of this one. `problem` is why the broker refuses it."""
    letter = record
    if record.channel is Channel.NOTIFICATIONS:
        source = dict(record.headers).get(SOURCE_POSITION, b"")
        ours = dead_letter_headers(DeadLetterReason.TOO_LARGE, problem, source, now)
        letter = OutputRecord(record.number, Channel.DEAD_LETTERS, record.key, (*record.headers, *ours), record.value)
        yield letter
    elif record.channel is not Channel.DEAD_LETTERS:
        return
    headers = letter.headers
    if all(name != DEAD_LETTER_VALUE_LENGTH for name, _ in headers):
        headers = (*headers, *cut_headers(Cut(len(letter.value), sha256(letter.value).hexdigest())))
    yield OutputRecord(letter.number, letter.channel, letter.key, headers, letter.value[:BEGINNING_BYTES])
    needed = tuple(
        (name, value[:200]) for name, value in headers if name.startswith(DEAD_LETTER_PREFIX) or name == POSSIBLE_DUPLICATE
    )
    yield OutputRecord(letter.number, letter.channel, None, needed, b"")


def find_fitting(record: OutputRecord, find_problem: Callable[[OutputRecord], str | None], now: Instant) -> OutputRecord | None:
    """Return the record, or the first of ever smaller ones, in which no problem is found; None if there is none."""
    problem = find_problem(record)
    if problem is None:
        return record
    return next((each for each in smaller(record, problem, now) if find_problem(each) is None), None)
