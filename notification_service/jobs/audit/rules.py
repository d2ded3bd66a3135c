"""The service's configuration as the tasks of an audit need it, and the strategy, handler and decoder made of it."""

from io import StringIO
from random import Random

import msgspec

from notification_service.events.format import DecodingSettings
from notification_service.jobs.audit.replay_handler import ReplayHandler
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.settings import HandlerSettings
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy
from resequencer.turn.turn import TurnContext


class AuditSettings(msgspec.Struct, frozen=True):
    """`table` is the text of the notification settings, `lookups` the directory of the releases.

    `settled` holds the offset up to which each partition was settled; output of later records may still come. `grace_ms` is how
    long after its deadline a release may come, because the service first reads the partition's backlog. After `final_statuses`
    nothing more is expected of a payment of a group.
    """

    strategy: StrategySettings
    handler: HandlerSettings
    resequencer: ResequencerSettings
    table: str
    lookups: str
    topic: str
    max_value_bytes: int
    settled: dict[int, int]
    grace_ms: int = 60_000
    final_statuses: tuple[str, ...] = ()


class AuditRules:
    """The strategy, handler and decoder of an audit; made once in each task."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self.strategy: Strategy = make_strategy(settings.strategy)
        table = parse_notification_settings(StringIO(settings.table), "notification settings")
        self.handler = ReplayHandler(settings.handler, table, settings.lookups)
        # An audit never retries, so this random generator is never used.
        self.context = TurnContext(self.strategy, self.handler, LATEST_OBJECTS, settings.resequencer, Random(0))  # noqa: S311
        # A user's own strategy may read any part of the record.
        self.needs_records = ":" in settings.strategy.strategy
        bounds = (settings.max_value_bytes, settings.strategy.lowest_number)
        self.decoder = EnvelopeDecoder(DecodingSettings(self.strategy.needs_sequence, *bounds))
