"""The handler of process objects: settings look-up, status report, target type, notification."""

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.notification import Notification, notification_id
from domain.record import Headers
from resequencer.handlers.notification_settings import NotificationSetting, NotificationSettings
from resequencer.handlers.original import Originals
from resequencer.handlers.port import Handled, Marks
from resequencer.handlers.status_report import encode_report
from resequencer.handlers.target_types import TargetType
from resequencer.payment_data import PaymentData


class ProcessObjectHandler:
    """Makes a notification of each process object that the settings know. Keeps nothing between calls but caches."""

    def __init__(self, notification_settings: NotificationSettings, target_type: TargetType) -> None:
        self._settings = notification_settings
        self._target_type = target_type
        self._originals = Originals()

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Process objects are counted from 0, those without a row too: ids must not move when the settings change.

        Raises:
            TransientError: The target type asks to be called again.
            PermanentError: The payment data cannot be read, or the target type failed for ever.
        """
        notifications: list[Notification] = []
        unmatched = 0
        for index, process_object in enumerate(envelope.process_objects):
            setting = self._settings.find(process_object.process_flow_name, process_object.event_name)
            if setting is None:
                unmatched += 1
                continue
            message_id = notification_id(envelope.unit, envelope.envelope_id, index)
            report = encode_report(message_id, now, setting, process_object.reason_code, self._originals.get(data))
            notifications.append(
                Notification(
                    message_id,
                    envelope.unit,
                    setting.transaction_status,
                    self._target_type(report, data),
                    _headers(message_id, envelope, setting, marks),
                    envelope.record.origin,
                )
            )
        return Handled(tuple(notifications), unmatched)


def _headers(message_id: str, envelope: DataEnvelope, setting: NotificationSetting, marks: Marks) -> Headers:
    """In the contract's order (section 4); `possible-duplicate` is added by who publishes."""
    headers: Headers = (
        ("notification-id", message_id.encode()),
        ("envelope-id", envelope.envelope_id.encode()),
        ("source-position", str(envelope.record.origin).encode()),
        ("event-name", setting.event_name.encode()),
        ("process-flow-name", setting.process_flow_name.encode()),
    )
    if marks.incomplete is not None:
        headers += (("incomplete", marks.incomplete.encode()),)
    if marks.late:
        headers += (("late", b"true"),)
    return headers
