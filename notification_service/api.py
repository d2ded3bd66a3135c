"""What modules of users import: for strategies, target types, handlers and stores of their own (docs/extending.md).

A lookup of one's own, which needs Spark, imports from `notification_service.jobs.lookups.spec`.
"""

from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.port import Message, UsersHandler
from notification_service.payments.settings import HandlerSettings
from notification_service.payments.strategies import StrategySettings
from notification_service.wiring.aggregation import open_atomic_store
from resequencer.clock import Instant
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.event import Event
from resequencer.handler import Marks
from resequencer.strategies.port import Rank, Strategy, StrategyState

__all__ = [
    "DataEnvelope",
    "DependencyUnavailable",
    "Enrichment",
    "Event",
    "HandlerSettings",
    "Instant",
    "Marks",
    "Message",
    "PaymentData",
    "PermanentError",
    "Rank",
    "Strategy",
    "StrategySettings",
    "StrategyState",
    "TransientError",
    "UsersHandler",
    "open_atomic_store",
]
