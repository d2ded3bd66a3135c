"""The handler of process objects: settings look-up, status report, target type, notification."""

from __future__ import annotations

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import TooLarge
from domain.headers import CHANNEL, LANGUAGE
from domain.notification import Notification, notification_id
from domain.record import Headers
from enrichment.shapes import CustomerValue
from resequencer.handlers.contract_headers import About, contract_headers, version_headers
from resequencer.handlers.custom_target import CustomTarget
from resequencer.handlers.enrichment import Enrichment
from resequencer.handlers.notification_settings import NotificationSetting
from resequencer.handlers.original import Originals
from resequencer.handlers.port import Handled, Marks
from resequencer.handlers.status_report import encode_report
from resequencer.handlers.target_types import TargetType
from resequencer.payment_data import PaymentData


class ProcessObjectHandler:
    """Makes a notification of each process object that has a setting. Its only state between calls is caches.

    It uses one version of the lookups.
    """

    def __init__(self, enrichment: Enrichment, target_type: TargetType, most_bytes: int) -> None:
        self._enrichment = enrichment
        self._target_type = target_type.with_lookups(enrichment) if isinstance(target_type, CustomTarget) else target_type
        self._most_bytes = most_bytes
        self._originals = Originals(enrichment)
        self._version = version_headers(enrichment.version)

    def with_lookups(self, enrichment: Enrichment) -> ProcessObjectHandler:
        """Return a handler for another version. This handler is unchanged; do not use it after its version was closed."""
        return ProcessObjectHandler(enrichment, self._target_type, self._most_bytes)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Handle an envelope.

        Process objects are numbered from 0 for the notification id, including those without a row. So the ids stay the same when
        the settings change. The settings of the envelope's entity count; if it names none, those of the customer's entity.

        Raises:
            TransientError: The target type failed and may be called again.
            PermanentError: The payment data cannot be read, or the target type failed for good.
            TooLarge: The notifications together are too large.
        """
        notifications: list[Notification] = []
        room = self._most_bytes
        unmatched = suppressed = 0
        entity, original = envelope.processing_entity, None
        if entity is None and self._version and envelope.process_objects:
            original = self._originals.get(data)
            entity = None if original.customer is None else original.customer.entity
        for index, process_object in enumerate(envelope.process_objects):
            setting = self._enrichment.find_setting(entity, process_object.process_flow_name, process_object.event_name)
            if setting is None:
                unmatched += 1
                continue
            if original is None:
                original = self._originals.get(data)
            if setting.is_suppressed or not _is_wanted(setting, original.customer):
                suppressed += 1
                continue
            message_id = notification_id(envelope.unit, envelope.envelope_id, index)
            words = self._enrichment.find_words
            about = About(setting.event_name, setting.process_flow_name, setting.transaction_status, entity)
            report = encode_report(message_id, now, setting, process_object.reason_code, original, words)
            made = Notification(
                message_id,
                envelope.unit,
                setting.transaction_status,
                self._target_type(report, data),
                contract_headers(message_id, envelope, about, marks) + self._version + _customer_headers(original.customer),
                envelope.record.origin,
            )
            room -= made.size
            if room < 0:
                raise self._too_large(envelope, len(notifications))
            notifications.append(made)
        return Handled(tuple(notifications), unmatched, suppressed)

    def _too_large(self, envelope: DataEnvelope, fit: int) -> TooLarge:
        events = len(envelope.process_objects)
        return TooLarge(
            f"the notifications of its process objects ({events}) exceed {self._most_bytes} bytes after the first {fit}; "
            "send fewer process objects in an envelope, or raise max-record-bytes to more than a quarter of their size"
        )


def _is_wanted(setting: NotificationSetting, customer: CustomerValue | None) -> bool:
    if customer is None or customer.statuses is None:
        return True
    return setting.transaction_status in customer.statuses.split()


def _customer_headers(customer: CustomerValue | None) -> Headers:
    if customer is None:
        return ()
    said = ((CHANNEL, customer.channel), (LANGUAGE, customer.language))
    return tuple((name, value.encode()) for name, value in said if value is not None)
