"""Lines as records of the fake broker, and the output in the form that the judges read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.crashes.outcomes import Outcome
from harness.service_under_test import TOPIC, Dead, Teller, Told
from kafka.structs import TopicPartition
from msgspec.structs import replace
from simulation.fakes.broker import FakeBroker, Stored
from simulation.injected_faults import InjectedFaults
from simulation.worker import DEAD_LETTERS, NOTIFICATIONS

from notification_service.connectors.line_format import Line, decode_line
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from resequencer.clock import Instant
from resequencer.handler import Handled, Marks

if TYPE_CHECKING:
    from simulation.world import World


def to_stored(line: bytes) -> Stored:
    decoded = decode_line(line)
    return Stored(decoded.key, decoded.value, decoded.headers) if isinstance(decoded, Line) else Stored(None, line, ())


class SourcedTeller(Teller):
    """Adds to each notification the position of the record that caused it. `takes_ms` returns how long the handler takes."""

    takes_ms: Callable[[], int] = staticmethod(lambda: 0)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        self._clock.advance(self.takes_ms())
        (notification,) = super().handle(envelope, data, marks, now).notifications
        return Handled(
            (replace(notification, headers=(*notification.headers, ("source-position", str(notification.origin).encode()))),)
        )


def find_false_mark(world: World) -> str | None:
    """Find an output that is wrongly marked as a possible duplicate.

    The mark is allowed only if the record that caused the output was in its log when something was forgotten.
    """
    notified = [(each, "source-position") for each in world.broker.decided(NOTIFICATIONS)]
    dead = [(each, "dead-letter-source-position") for each in world.broker.decided(DEAD_LETTERS)]
    for record, source in (*notified, *dead):
        headers = dict(record.headers)
        place, offset = headers[source].decode().rsplit("@", 1)
        number = int(place.rsplit("-", 1)[1])
        if "possible-duplicate" in headers and int(offset) >= world.may_repeat_below[TopicPartition(TOPIC, number)]:
            return f"marked possible-duplicate though nothing was forgotten since it came: {headers}"
    return None


def read_outcome(broker: FakeBroker, injected_faults: InjectedFaults) -> Outcome:
    """Return what a `read_committed` reader gets, without a judgement."""
    notifications = tuple(_told(each) for each in broker.decided(NOTIFICATIONS))
    dead = tuple(_dead(each) for each in broker.decided(DEAD_LETTERS))
    return Outcome(
        notifications, dead, injected_faults.crashes, injected_faults.count, injected_faults.steps, tuple(injected_faults.trace)
    )


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
