"""The handler of process objects: settings look-up, status report, target type, notification."""

from __future__ import annotations

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import TooLarge
from domain.fact import Fact
from domain.headers import CHANNEL, LANGUAGE
from domain.notification import Notification, notification_id
from domain.record import Headers
from enrichment.shapes import CustomerValue
from resequencer.handlers.contract_headers import About, contract_headers, version_headers
from resequencer.handlers.custom_target import CustomTarget
from resequencer.handlers.enrichment import Enrichment
from resequencer.handlers.facts import EnvelopeFacts
from resequencer.handlers.notification_settings import NotificationSetting
from resequencer.handlers.original import Originals
from resequencer.handlers.port import Handled, Marks
from resequencer.handlers.status_report import encode_report
from resequencer.handlers.target_types import TargetType
from resequencer.payment_data import PaymentData


class ProcessObjectHandler:
    """Makes a notification of each process object that has a setting, and a fact if it `makes_facts`. Its only state between
    calls is caches.

    It uses one version of the lookups.
    """

    def __init__(self, enrichment: Enrichment, target_type: TargetType, most_bytes: int, *, makes_facts: bool = False) -> None:
        self._enrichment = enrichment
        self._target_type = target_type.with_lookups(enrichment) if isinstance(target_type, CustomTarget) else target_type
        self._most_bytes = most_bytes
        self._makes_facts = makes_facts
        self._originals = Originals(enrichment, for_facts=makes_facts)
        self._version = version_headers(enrichment.version)

    def with_lookups(self, enrichment: Enrichment) -> ProcessObjectHandler:
        """Return a handler for another version. This handler is unchanged; do not use it after its version was closed."""
        return ProcessObjectHandler(enrichment, self._target_type, self._most_bytes, makes_facts=self._makes_facts)

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
        find_setting, events = self._enrichment.find_setting, envelope.process_objects
        settings = [find_setting(entity, each.process_flow_name, each.event_name) for each in events]
        matched = [(index, setting) for index, setting in enumerate(settings) if setting is not None]
        if not matched:
            return Handled(unmatched=len(events))
        original = original or self._originals.get(data)
        of_envelope = EnvelopeFacts(envelope, entity, original.membership, marks) if self._makes_facts else None
        group = () if of_envelope is None else of_envelope.group_headers
        told, facts, room = list[Notification](), list[Fact](), self._most_bytes
        suppressed = 0
        for index, setting in matched:
            is_told = not setting.is_suppressed and _is_wanted(setting, original.customer)
            suppressed += not is_told
            if not (is_told or self._makes_facts):
                continue
            status, message_id = setting.transaction_status, notification_id(envelope.unit, envelope.envelope_id, index)
            about = About(setting.event_name, setting.process_flow_name, status, entity)
            headers = contract_headers(message_id, envelope, about, marks, group)
            if of_envelope is not None:
                facts.append(of_envelope.make(status, headers))
                room -= facts[-1].size
            if is_told:
                reason, words = events[index].reason_code, self._enrichment.find_words
                value = self._target_type(encode_report(message_id, now, setting, reason, original, words), data)
                headers += self._version + _customer_headers(original.customer)
                told.append(Notification(message_id, envelope.unit, status, value, headers, envelope.record.origin))
                room -= told[-1].size
            if room < 0:
                raise self._too_large(envelope, len(told) - is_told)
        return Handled(tuple(told), len(events) - len(matched), suppressed, tuple(facts))

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
