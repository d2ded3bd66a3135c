"""More pending records than one transaction can hold, on a real broker."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.servers.kafka_worker import KafkaWorker, token

from guardian.pending_output import to_pending
from guardian.ports import Channel, OutputRecord
from resequencer.storage_port import Commit
from servers.kafka import KafkaServer
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow

_COUNT, _BYTES = 60_000, 1_500
_SHORT = {"transaction.timeout.ms": 1_500}


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(kafka, partitions=1)
    yield stage
    stage.close()


def test_more_than_a_transaction_can_take_leaves_in_several_each_number_once_and_in_order(
    stage: KafkaStage, tmp_path: Path
) -> None:
    def run() -> KafkaWorker:
        return KafkaWorker(stage, EmbeddedStorage(EmbeddedSettings(tmp_path / "state.db"), token), _SHORT)

    with closing(run()) as first:
        held = first.run_until_owned()
        pending = tuple(
            to_pending(OutputRecord(number, Channel.NOTIFICATIONS, b"unit", (), b"%d" % number + b" " * _BYTES))
            for number in range(1, _COUNT + 1)
        )
        held.store.commit(Commit(held.store.header.commit + 1, "attempt", held.read_to, _COUNT, added=pending))
    for _ in range(2):
        with closing(run()) as killed_between_two_portions:
            killed_between_two_portions.run_until_owned()
            killed_between_two_portions.cycle.run_once()
    with closing(run()) as last:
        last.live_until_read()
    assert [int(each.value) for each in stage.outputs()] == list(range(1, _COUNT + 1))
