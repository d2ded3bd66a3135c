"""Positions on a real broker: records done ahead of one, a log that lost a part of them, the last one of a worker that fails."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness.driving import wire
from harness.servers.kafka_worker import KafkaWorker, token
from harness.waiting import wait_until
from kafka import TopicPartition

from guardian.ports import TransportRefused
from servers.kafka import KafkaServer
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


def notified(stage: KafkaStage) -> list[str]:
    """Return the units of the notifications, in order."""
    return [each.key.decode() for each in stage.outputs()]


def envelope(unit: str, sequence: int) -> bytes:
    return wire(unit, "A", sequence, f"{unit}#A#{sequence}")


def live(stage: KafkaStage) -> None:
    """Run a worker until everything is read, then kill it."""
    with closing(KafkaWorker(stage)) as run:
        run.live_until_read()


def test_where_retention_took_only_what_was_done_reading_goes_on_behind_it(kafka: KafkaServer) -> None:
    with closing(KafkaStage(kafka, partitions=1)) as stage:
        stage.send(*(envelope(unit, 1) for unit in "abc"))
        live(stage)
        position = stage.committed(stage.partitions[0])
        assert position is not None
        assert position.offset == 0
        with closing(kafka.admin()) as admin:
            admin.delete_records({TopicPartition(*stage.partitions[0]): 2})
        stage.send(envelope("d", 1))
        live(stage)
        assert notified(stage) == [*"abcd"]


def test_a_log_that_lost_its_tail_is_refused_where_something_was_done_there(struck_server: Callable[..., Any]) -> None:
    """Else records that came since would be taken for done ones, and no notification would be sent for them."""
    broker: KafkaServer = struck_server(KafkaServer)
    with closing(KafkaStage(broker, partitions=1)) as stage:
        stage.send(envelope("held", 2))
        segment = broker.directory / "data" / f"{stage.topics.input}-0" / f"{0:020}.log"
        kept = segment.stat().st_size
        stage.send(*(envelope(f"done{number}", 1) for number in range(8)))
        live(stage)
        assert len(notified(stage)) == 8
        broker.stop()
        with segment.open("r+b") as file:
            file.truncate(kept)
        broker.start()
        stage.send(*(envelope(f"new{number}", 1) for number in range(6)))
        assert len(stage.inputs()) == 7
        with pytest.raises(TransportRefused, match="it was read up to offset 9, but its log ends at 7"):
            live(stage)
        assert len(notified(stage)) == 8


def test_a_worker_that_fails_publishes_the_position_that_it_had_committed_and_nothing_more(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    def run() -> KafkaWorker:
        storage = EmbeddedStorage(EmbeddedSettings(tmp_path / "state.db"), token)
        return KafkaWorker(stage, storage, every_ms=3_600_000)

    def fail_on_envelopes(now: int, envelopes: Any, *rest: Any) -> Any:
        if envelopes and failing.owned[0].read_to > 1:
            raise mistake
        return decide(now, envelopes, *rest)

    mistake = ArithmeticError("a bug of ours")
    with closing(KafkaStage(kafka, partitions=1)) as stage:
        stage.send(envelope("held", 2))
        with closing(run()) as failing:
            actors = failing.servers.actors
            decide = actors.decide
            actors.decide = fail_on_envelopes  # type: ignore[method-assign]
            owned = failing.run_until_owned()
            wait_until(lambda: owned.store.header.next_offset == 1 or (failing.cycle.run_once() and None), "a commit")
            stage.send(envelope("v", 1))
            with pytest.raises(ArithmeticError):
                wait_until(lambda: failing.cycle.run_once() and None, "the failure")
            position = stage.committed(stage.partitions[0])
            assert (position and position.offset) == 0
            failing.servers.transport.publish(failing.cycle.last_positions(mistake))
        position = stage.committed(stage.partitions[0])
        assert (position and position.offset) == 1
        stage.send(envelope("held", 1))
        with closing(run()) as last:
            wait_until(lambda: (last.cycle.run_once() and None) or len(notified(stage)) == 3, "all notifications")
        assert sorted(notified(stage)) == ["held", "held", "v"]
