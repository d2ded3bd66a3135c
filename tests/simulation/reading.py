"""Lines as records of the fake broker, and what left as the judges know it."""

import json

from crash_simulation import Outcome
from service_under_test import Dead, Told
from simulation.fake_broker import FakeBroker, Stored
from simulation.misfortunes import Misfortunes
from simulation.worker import DEAD_LETTERS, NOTIFICATIONS

from connectors.file_lines import Line, decode_line


def to_stored(line: bytes) -> Stored:
    decoded = decode_line(line)
    return Stored(decoded.key, decoded.value, decoded.headers) if isinstance(decoded, Line) else Stored(None, line, ())


def read_outcome(broker: FakeBroker, misfortunes: Misfortunes) -> Outcome:
    """What a `read_committed` reader gets; without a judgement."""
    told = tuple(_told(each) for each in broker.decided(NOTIFICATIONS))
    dead = tuple(_dead(each) for each in broker.decided(DEAD_LETTERS))
    return Outcome(told, dead, misfortunes.crashes, misfortunes.count, misfortunes.steps, tuple(misfortunes.trace))


def _told(record: Stored) -> Told:
    headers = dict(record.headers)
    value = json.loads(record.value or b"")
    incomplete = headers.get("incomplete")
    return Told(
        "",
        (record.key or b"").decode(),
        headers["notification-id"].decode(),
        value["sequence"],
        tuple(value["data"]),
        None if incomplete is None else incomplete.decode(),
        "late" in headers,
        "possible-duplicate" in headers,
    )


def _dead(record: Stored) -> Dead:
    headers = dict(record.headers)
    return Dead(
        headers["dead-letter-source-position"].decode(),
        headers["dead-letter-reason"].decode(),
        record.value or b"",
        headers["dead-letter-error"].decode(),
        "possible-duplicate" in headers,
    )
