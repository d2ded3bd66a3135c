"""More is pending than one transaction can take, on a real broker."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from driving import NoChance
from service_under_test import FakeClock, Teller
from waiting import wait_until

from connectors.kafka_transport import KafkaTransport
from connectors.port import Channel, Outgoing
from daemon.system_clock import SystemClock
from domain.decoding import DecodingSettings, EnvelopeDecoder
from guardian.actors import Actors
from guardian.cycle import Cycle
from guardian.outgoing import to_pending
from guardian.ownership import CycleSettings, Servers, Tools
from guardian.patience import Patience, PatienceSettings
from guardian.roster import RosterSettings
from resequencer.rules import Rules
from resequencer.settings import ResequencerSettings
from resequencer.strategies.registry import StrategySettings, make_strategy
from servers.kafka import KafkaServer
from storage.embedded import EmbeddedSettings, EmbeddedStorage
from storage.port import Commit
from tests.connectors.kafka_stage import KafkaStage

pytestmark = pytest.mark.slow

_COUNT, _BYTES = 60_000, 1_500
_TRANSACTION_MS = 1_500


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(kafka, partitions=1)
    yield stage
    stage.close()


class Life:
    """A worker on the stage, with its storage in a file, from its start to its death."""

    _tokens = count(1)

    def __init__(self, stage: KafkaStage, directory: Path) -> None:
        slow = {"transaction.timeout.ms": _TRANSACTION_MS}
        strategy, decoder = make_strategy(StrategySettings("SEQUENCE")), EnvelopeDecoder(DecodingSettings(needs_sequence=True))
        rules = Rules(strategy, Teller(FakeClock()), ResequencerSettings(), NoChance())
        self._servers = Servers(
            KafkaTransport(stage.settings("slot", producer=slow), SystemClock()),
            EmbeddedStorage(EmbeddedSettings(directory / "state.db"), lambda: f"token-{next(self._tokens)}"),
            Actors(rules, decoder.decode, RosterSettings()),
        )
        self.tries = 0
        patience = Patience(PatienceSettings(1, 1), self._note_pause, lambda: self.tries > _MOST_TRIES)
        tools = Tools(decoder, SystemClock(), patience, lambda: f"token-{next(self._tokens)}")
        self.cycle = Cycle(self._servers, tools, CycleSettings(strategy.name))

    def live_until(self, question: str) -> None:
        """Cycles until something is held, or until nothing is owed any more."""
        held = self.cycle.ownership.held

        def is_so() -> bool:
            self.cycle.run_once()
            return bool(held) and (question == "held" or not any(each.unpublished for each in held.values()))

        wait_until(is_so, question, seconds=120)

    def close(self) -> None:
        for each in self._servers:
            each.close()

    def _note_pause(self, _: int) -> None:
        self.tries += 1


_MOST_TRIES = 20


def test_more_than_a_transaction_can_take_leaves_in_several_each_number_once_and_in_order(
    stage: KafkaStage, tmp_path: Path
) -> None:
    with closing(Life(stage, tmp_path)) as life:
        life.live_until("held")
        (held,) = life.cycle.ownership.held.values()
        pending = tuple(
            to_pending(Outgoing(number, Channel.NOTIFICATIONS, b"unit", (), b"%d" % number + b" " * _BYTES))
            for number in range(1, _COUNT + 1)
        )
        held.store.commit(Commit(held.store.header.commit + 1, "attempt", held.read_to, _COUNT, added=pending))
    for _ in range(2):
        with closing(Life(stage, tmp_path)) as life:
            life.live_until("held")
    with closing(Life(stage, tmp_path)) as life:
        life.live_until("nothing is owed")
        assert life.tries <= _MOST_TRIES
    assert [int(each.value) for each in stage.outputs()] == list(range(1, _COUNT + 1))
