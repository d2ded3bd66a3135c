"""A whole worker from queues to queues, in this process, from its start to its exit."""

from itertools import count
from pathlib import Path

from harness.driving import NoChance
from harness.service_under_test import FakeClock, Teller
from harness.waiting import wait_ms

from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff
from guardian.cycle import Cycle
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.unit_registry import UnitRegistrySettings
from notification_service.connectors.region_transport import RegionTransport, routes_of
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.supervision.system_clock import SystemClock
from resequencer.settings import ResequencerSettings
from resequencer.turn.turn import TurnContext
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from tests.notification_service.connectors.jms.stage import Queues

WINDOW = 60
_tokens = count(1)


class JmsWorker:
    """A worker with strategy SEQUENCE and an embedded storage. `close` is an exit: nothing is drained."""

    def __init__(self, queues: Queues, file: Path) -> None:
        strategy, decoder = make_strategy(StrategySettings("SEQUENCE")), EnvelopeDecoder(DecodingSettings(needs_sequence=True))
        context = TurnContext(strategy, Teller(FakeClock()), LATEST_OBJECTS, ResequencerSettings(), NoChance())
        transport = RegionTransport(queues.source(window=WINDOW), routes_of({"jms": queues.sink()}))
        storage = EmbeddedStorage(EmbeddedSettings(file), lambda: f"token-{next(_tokens)}")
        self._servers = Servers(transport, storage, ActorGateway(context, decoder.decode, UnitRegistrySettings()))
        retry = RetryWithBackoff(BackoffSettings(20, 200), wait_ms, lambda: False)
        settings = CycleSettings(strategy.name, WINDOW, 50, acknowledge_every_ms=0)
        tools = Tools(decoder, SystemClock(), retry, lambda: f"token-{next(_tokens)}", LogRateLimit())
        self.cycle = Cycle(self._servers, tools, settings)

    def run_once(self) -> None:
        self.cycle.run_once()

    @property
    def is_through(self) -> bool:
        """Whether everything is read, has left, and is acknowledged."""
        owned, ends = self.cycle.partitions.owned, self.cycle.metrics.readable_ends
        return len(owned) == 2 and all(
            each.read_to >= ends.get(name, 1 << 62) and not each.unpublished and not each.positions.has_moved()
            for name, each in owned.items()
        )

    def close(self) -> None:
        for each in self._servers:
            each.close()


class Died(BaseException):
    """The worker's process ends here: nothing may catch it."""
