"""What modules of users import: for strategies, formats, target types, handlers, data handlers and stores of their own
(docs/extending.md).

A lookup of one's own, which needs Spark, imports from `notification_service.jobs.lookups.spec`.
"""

from notification_service.events.format import DecodingSettings
from notification_service.events.own_data import UsersDataHandler
from notification_service.events.own_format import UsersFormat, make_event
from notification_service.events.own_handler import EventMessage, UsersEventHandler
from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.port import Message, UsersHandler
from notification_service.payments.settings import HandlerSettings
from notification_service.payments.strategies import StrategySettings
from notification_service.wiring.aggregation import open_atomic_store
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.event import Event, Refusal
from resequencer.handler import Marks
from resequencer.record import Record
from resequencer.strategies.port import Rank, Strategy, StrategyState

__all__ = [
    "DataEnvelope",
    "DeadLetterReason",
    "DecodingSettings",
    "DependencyUnavailable",
    "Enrichment",
    "Event",
    "EventMessage",
    "HandlerSettings",
    "Instant",
    "Marks",
    "Message",
    "PaymentData",
    "PermanentError",
    "Rank",
    "Record",
    "Refusal",
    "Strategy",
    "StrategySettings",
    "StrategyState",
    "TransientError",
    "UsersDataHandler",
    "UsersEventHandler",
    "UsersFormat",
    "UsersHandler",
    "make_event",
    "open_atomic_store",
]
