"""The handler of process objects: settings look-up, status report, target type, notification."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from msgspec.structs import replace

from guardian.headers import CHANNEL, LANGUAGE
from notification_service.lookups.shapes import CustomerValue
from notification_service.payments.contract_headers import About, about_headers, contract_headers, version_headers
from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.facts import EnvelopeFacts
from notification_service.payments.notification_settings import NotificationSetting
from notification_service.payments.original import Originals
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.target_types import (
    CustomTarget,
    TargetType,
    as_it_is,
    encode_group_status,
    encode_report,
    encode_status,
)
from resequencer.clock import Instant
from resequencer.errors import TooLarge
from resequencer.handler import Handled, HandlerCall, Marks
from resequencer.notification import Fact, Notification, notification_id
from resequencer.record import Headers

_MAX_ROWS = 4_096
"""So many events with a setting are kept prepared, by entities, which come from the records and have 256 characters at most. An
event without a setting is not kept: its names come from the record alone, and may be as long as that.
"""


class _Row(NamedTuple):
    """What all notifications about an event have in common: its setting, headers, and encoded members of the report."""

    setting: NotificationSetting
    about: Headers
    status: bytes
    group_status: bytes


class ProcessObjectHandler:
    """Makes a notification of each process object that has a setting, and a fact if it `makes_facts`. Its only state between
    calls is caches.

    It uses one version of the lookups.
    """

    def __init__(self, enrichment: Enrichment, target_type: TargetType, max_bytes: int, *, makes_facts: bool = False) -> None:
        self._enrichment = enrichment
        self._target_type = target_type.with_lookups(enrichment) if isinstance(target_type, CustomTarget) else target_type
        self._is_report = self._target_type is as_it_is
        self._rows: dict[tuple[str | None, str | None, str | None], _Row] = {}
        self._max_bytes = max_bytes
        self._makes_facts = makes_facts
        self._originals = Originals(enrichment, for_facts=makes_facts)
        self._version = version_headers(enrichment.version)

    def with_lookups(self, enrichment: Enrichment) -> ProcessObjectHandler:
        """Return a handler for another version. This handler is unchanged; do not use it after its version was closed."""
        return ProcessObjectHandler(enrichment, self._target_type, self._max_bytes, makes_facts=self._makes_facts)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Handle an envelope.

        Process objects are numbered from 0 for the notification id, including those without a row. So the ids stay the same when
        the settings change. The settings of the envelope's entity count; if it names none, those of the customer's entity.

        Raises:
            TransientError: The target type failed and may be called again.
            PermanentError: The payment data cannot be read, or the target type failed for good.
            TooLarge: The notifications together, or they with the facts, are too large.
        """
        entity, original = envelope.processing_entity, None
        if entity is None and self._version and envelope.process_objects:
            original = self._originals.get(data)
            entity = None if original.customer is None else original.customer.entity
        rows, room = self._rows, self._max_bytes
        notifications: list[Notification] = []
        facts: list[Fact] = []
        of_envelope: EnvelopeFacts | None = None
        unmatched = suppressed = 0
        for index, event in enumerate(envelope.process_objects):
            key = entity, event.process_flow_name, event.event_name
            row = rows[key] if key in rows else self._row(key)
            if row is None:
                unmatched += 1
                continue
            original = original or self._originals.get(data)
            setting, customer = row.setting, original.customer
            is_wanted = not setting.is_suppressed and (customer is None or _is_wanted(setting, customer))
            if not is_wanted:
                suppressed += 1
                if not self._makes_facts:
                    continue
            if self._makes_facts and of_envelope is None:
                of_envelope = EnvelopeFacts(envelope, entity, original.membership, marks)
            message_id = notification_id(envelope.unit, envelope.envelope_id, index)
            group = () if of_envelope is None else of_envelope.group_headers
            headers = contract_headers(message_id, envelope, row.about, marks, group)
            if of_envelope is not None:
                facts.append(of_envelope.make(setting.transaction_status, headers))
                room -= facts[-1].size
            if is_wanted:
                status = row.status if event.reason_code is None else self._status(setting, event.reason_code)
                value = encode_report(message_id, now, status, row.group_status, original)
                value = value if self._is_report else self._target_type(value, data)
                headers = headers + self._version + _customer_headers(customer) if self._version else headers
                made = Notification(
                    message_id, envelope.unit, setting.transaction_status, value, headers, envelope.record.origin, self._is_report
                )
                notifications.append(made)
                room -= made.size
            if room < 0:
                raise _too_large(envelope, self._max_bytes, len(notifications) - is_wanted)
        return Handled(tuple(notifications), unmatched, suppressed, tuple(facts))

    def _status(self, setting: NotificationSetting, reason_code: str) -> bytes:
        return encode_status(setting, reason_code, self._enrichment.find_words)

    def _row(self, key: tuple[str | None, str | None, str | None]) -> _Row | None:
        """Prepare an event of an entity and a process flow; None if the event causes no notification."""
        setting = self._enrichment.find_setting(*key)
        if setting is None:
            return None
        about = About(setting.event_name, setting.process_flow_name, setting.transaction_status, key[0])
        row = _Row(setting, about_headers(about), encode_status(setting), encode_group_status(setting))
        if len(self._rows) >= _MAX_ROWS:
            self._rows.clear()
        self._rows[key] = row
        return row


def _too_large(envelope: DataEnvelope, max_bytes: int, fit: int) -> TooLarge:
    events = len(envelope.process_objects)
    return TooLarge(
        f"the notifications of its process objects ({events}) exceed {max_bytes} bytes after the first {fit}; "
        "send fewer process objects in an envelope, or raise max-record-bytes to more than a quarter of their size"
    )


def _is_wanted(setting: NotificationSetting, customer: CustomerValue) -> bool:
    return customer.statuses is None or setting.transaction_status in customer.statuses.split()


def _customer_headers(customer: CustomerValue | None) -> Headers:
    if customer is None:
        return ()
    headers = ((CHANNEL, customer.channel), (LANGUAGE, customer.language))
    return tuple((name, value.encode()) for name, value in headers if value is not None)


_UNLIMITED = 2**62


class WaitingTargetHandler:
    """The same with a user's own target type that waits. It is called for one process object after the other.

    The reports are made first, of which there is no limit: only what the target type makes of them leaves.
    """

    def __init__(self, enrichment: Enrichment, target_type: CustomTarget, max_bytes: int, *, makes_facts: bool = False) -> None:
        self._target_type = target_type.with_lookups(enrichment)
        self._max_bytes = max_bytes
        self._makes_facts = makes_facts
        self._reports = ProcessObjectHandler(enrichment, as_it_is, _UNLIMITED, makes_facts=makes_facts)
        self.call: HandlerCall = self._call

    def with_lookups(self, enrichment: Enrichment) -> WaitingTargetHandler:
        """Return a handler for another version."""
        return WaitingTargetHandler(enrichment, self._target_type, self._max_bytes, makes_facts=self._makes_facts)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> NoReturn:
        del envelope, data, marks, now
        raise AssertionError("a handler that waits is called beside the turn")

    async def _call(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        handled = self._reports.handle(envelope, data, marks, now)
        room = self._max_bytes - sum([each.size for each in handled.facts])
        made: list[Notification] = []
        for each in handled.notifications:
            value = await self._target_type.make(each.value or b"", data, envelope)
            made.append(replace(each, value=value, is_object=False))
            room -= made[-1].size
            if room < 0:
                raise _too_large(envelope, self._max_bytes, len(made) - 1)
        return replace(handled, notifications=tuple(made))
