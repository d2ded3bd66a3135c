"""The position of a partition as a broker keeps it, of a worker whose storage is the log itself and of one that has a storage."""

from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from compatibility.keeping import write_json
from harness.driving import wire
from harness.servers.kafka_worker import KafkaWorker

from servers.kafka import KafkaServer
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from tests.notification_service.connectors.kafka.stage import KafkaStage

RECORDS = (("owned", 2), ("done-1", 1), ("done-2", 1), ("owned-too", 3), ("done-3", 1))
"""In their order in the log, the units and their numbers: what is owned waits for number 1."""

DONE = ["done-1", "done-2", "done-3"]


def send(stage: KafkaStage) -> None:
    stage.send(*(wire(unit, "A", number, f"{unit}#A#{number}") for unit, number in RECORDS))


def keep_positions(kafka: KafkaServer, state_file: Path, kept: Path) -> None:
    tokens = count(1)
    storage = EmbeddedStorage(EmbeddedSettings(state_file), lambda: f"token-{next(tokens)}")
    write_json(kept, {"none": _position(kafka), "embedded": _position(kafka, storage)})


def _position(kafka: KafkaServer, storage: EmbeddedStorage | None = None) -> dict[str, Any]:
    with closing(KafkaStage(kafka, partitions=1)) as stage:
        send(stage)
        with closing(KafkaWorker(stage, storage)) as history:
            history.live_until_read()
        assert [each.key.decode() for each in stage.outputs()] == DONE
        committed = stage.committed(stage.partitions[0])
    assert committed is not None
    return {"offset": committed.offset, "metadata": committed.metadata}
