"""A whole worker on a real broker, in this process, from its start to its exit."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from harness.driving import NoChance
from harness.service_under_test import FakeClock, Teller
from harness.waiting import wait_until

from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff
from guardian.cycle import Cycle
from guardian.owned_partition import OwnedPartition
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.positions import MAX_CHARACTERS
from guardian.unit_registry import UnitRegistrySettings
from notification_service.connectors.kafka.sink import KafkaTransport
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.supervision.system_clock import SystemClock
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import Storage
from resequencer.turn.turn import TurnContext
from storage.none import NoneSettings, NoneStorage
from tests.notification_service.connectors.kafka.stage import KafkaStage

_MAX_FAILURES = 50
_tokens = count(1)


def token() -> str:
    return f"token-{next(_tokens)}"


class KafkaWorker:
    """A worker with strategy SEQUENCE. Without a storage the source is the store. `close` is an exit: nothing is drained.

    A position that moves without output is published every `every_ms`.

    `failures` counts the calls without an answer.
    """

    def __init__(
        self, stage: KafkaStage, storage: Storage | None = None, producer: Mapping[str, Any] = {}, every_ms: int = 1_000
    ) -> None:
        strategy, decoder = make_strategy(StrategySettings("SEQUENCE")), EnvelopeDecoder(DecodingSettings(needs_sequence=True))
        context = TurnContext(strategy, Teller(FakeClock()), LATEST_OBJECTS, ResequencerSettings(), NoChance())
        transport = KafkaTransport(stage.settings("slot", producer=producer), SystemClock())
        actors = ActorGateway(context, decoder.decode, UnitRegistrySettings(can_reload=storage is not None))
        self.servers = Servers(transport, storage or NoneStorage(NoneSettings(250_000), token), actors)
        self.failures = 0
        retry = RetryWithBackoff(BackoffSettings(1, 1), self._note_failure, lambda: self.failures > _MAX_FAILURES)
        is_store = storage is None
        settings = CycleSettings(
            strategy.name, 500, 50, is_store, MAX_CHARACTERS if is_store else None, acknowledge_every_ms=every_ms
        )
        self.cycle = Cycle(self.servers, Tools(decoder, SystemClock(), retry, token, LogRateLimit()), settings)

    @property
    def owned(self) -> list[OwnedPartition]:
        return list(self.cycle.partitions.owned.values())

    def run_until_owned(self) -> OwnedPartition:
        """Run until a partition is assigned, and return the first one."""
        wait_until(lambda: self.owned or (self.cycle.run_once() and None), "a partition")
        return self.owned[0]

    def live_until_read(self) -> None:
        """Run until everything is read and its output has left, with the positions."""

        def is_through() -> bool:
            has_committed = self.cycle.run_once()
            ends = self.cycle.metrics.log_ends
            is_read = bool(self.owned) and all(each.read_to >= ends.get(each.partition, 1 << 62) for each in self.owned)
            return (
                is_read and not has_committed and not any(each.unpublished or each.positions.has_moved() for each in self.owned)
            )

        wait_until(is_through, "everything is read and has left")

    def close(self) -> None:
        for each in self.servers:
            each.close()

    def _note_failure(self, _: int) -> None:
        self.failures += 1
