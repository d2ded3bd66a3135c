"""The service's configuration as the tasks of an audit need it, and the strategy, handler and decoder made of it."""

from io import StringIO
from random import Random

import msgspec
from msgspec.structs import force_setattr

from notification_service.events.mapped import Mapping
from notification_service.events.own_data import NO_DATA
from notification_service.events.settings import IPF, EventsSettings, decoding_settings, find_decoder
from notification_service.jobs.audit.replay_handler import ReplayHandler, ReplayPassThrough
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.notification_settings import NotificationSettings, parse_notification_settings
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.settings import HandlerSettings
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.event import Decoder
from resequencer.handler import DataHandler
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy
from resequencer.turn.turn import TurnContext


class AuditSettings(msgspec.Struct, frozen=True):
    """`table` is the text of the notification settings, empty without payments, `lookups` the directory of the releases.

    `settled` holds the offset up to which each partition was settled; output of later records may still come. `grace_ms` is how
    long after its deadline a release may come, because the service first reads the partition's backlog. After `final_statuses`
    nothing more is expected of a payment of a group. `events` is the format of the records; with `passes_through` they leave as
    they came. An order of an operator may wait for unread records for `backlog_wait_ms`.
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
    events: EventsSettings = EventsSettings(IPF, Mapping())
    passes_through: bool = False
    backlog_wait_ms: int = 600_000


class AuditRules:
    """The strategy, handler and decoder of an audit; made once in each task."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self.strategy: Strategy = make_strategy(settings.strategy)
        self.handler: ReplayHandler | ReplayPassThrough
        if settings.passes_through:
            self.handler = ReplayPassThrough()
        else:
            table = NotificationSettings(())
            if settings.table:
                table = parse_notification_settings(StringIO(settings.table), "notification settings")
            self.handler = ReplayHandler(settings.handler, table, settings.lookups)
        self.is_of_payments = settings.events.format == IPF
        data_handler: DataHandler = LATEST_OBJECTS if self.is_of_payments else NO_DATA
        # An audit never retries, so this random generator is never used.
        self.context = TurnContext(self.strategy, self.handler, data_handler, settings.resequencer, Random(0))  # noqa: S311
        # The records do not show when they arrived. So each has its own time, as if no producer's clock were ahead.
        force_setattr(self.context, "arrived", None)
        # They leave, or a user's own strategy may read any part of them.
        self.needs_records = settings.passes_through or ":" in settings.strategy.strategy
        decoding = decoding_settings(self.strategy, settings.strategy.first_sequence, settings.max_value_bytes)
        self.decoder: Decoder = find_decoder(settings.events, decoding) or EnvelopeDecoder(decoding)
