"""A handler as a user may write it."""

from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.port import Message
from notification_service.payments.settings import HandlerSettings
from resequencer.clock import Instant
from resequencer.errors import PermanentError
from resequencer.handler import Marks


class OddOnes:
    """Notifies of every second envelope, and refuses some of those that come in time."""

    def __init__(self, settings: HandlerSettings) -> None:
        del settings

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant, lookups: Enrichment) -> list[Message]:
        del data, now, lookups
        if envelope.offset % 5 == 0 and marks.incomplete is None:
            raise PermanentError("not this one")
        return [Message(number, "ACSC", b"handled") for number, _ in enumerate(envelope.process_objects) if envelope.offset % 2]
