"""What the service was configured with, as the tasks of an audit are told; and the unit's rules made of it."""

from io import StringIO
from random import Random

import msgspec

from domain.decoding import DecodingSettings, EnvelopeDecoder
from pipeline.audit.replay_handler import ReplayHandler
from resequencer.handlers.notification_settings import parse_notification_settings
from resequencer.handlers.settings import HandlerSettings
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy
from resequencer.strategies.registry import StrategySettings, make_strategy
from resequencer.turn_context import TurnContext


class AuditSettings(msgspec.Struct, frozen=True):
    """`table` is the text of the notification settings, `lookups` the directory of the releases.

    `settled` says how far each partition was settled: what follows from records beyond is not yet to be there. `grace_ms` is
    how long after a deadline a release may come, for the service first reads what lies in the partition.
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


class AuditRules:
    """Made once in each task."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self.strategy: Strategy = make_strategy(settings.strategy)
        table = parse_notification_settings(StringIO(settings.table), "notification settings")
        self.handler = ReplayHandler(settings.handler, table, settings.lookups)
        # Nothing is tried again here, so chance is never asked.
        self.context = TurnContext(self.strategy, self.handler, settings.resequencer, Random(0))  # noqa: S311
        # A user's own may look at whatever came.
        self.needs_records = ":" in settings.strategy.strategy
        self.decoder = EnvelopeDecoder(DecodingSettings(self.strategy.needs_sequence, settings.max_value_bytes))
