"""The position that a fixture has of a broker is understood by the code of today, and what is done beyond of it stays done."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from compatibility.kafka_position import DONE, RECORDS, send
from harness.driving import wire
from harness.servers.kafka_worker import KafkaWorker

from guardian import takeover
from guardian.positions import decode
from notification_service.connectors.kafka.core.offset_metadata import OffsetMetadata, find_metadata
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage


@pytest.fixture
def positions(kept: Path) -> dict[str, Any]:
    return json.loads((kept / "kafka.json").read_text(encoding="utf-8"))


def metadata_of(position: dict[str, Any]) -> OffsetMetadata:
    found = find_metadata(position["metadata"], "t-0")
    assert found is not None
    return found


def test_where_the_log_is_the_storage_the_position_tells_what_is_done_ahead_of_it(positions: dict[str, Any]) -> None:
    metadata = takeover.find_metadata(metadata_of(positions["none"]).text)
    assert metadata is not None
    done = decode(positions["none"]["offset"], metadata.done)
    assert done is not None
    assert (positions["none"]["offset"], done.end) == (0, len(RECORDS))
    assert [unit for offset, (unit, _) in enumerate(RECORDS) if done.is_done(offset)] == DONE


def test_with_a_storage_it_names_the_commit_that_it_stands_on(positions: dict[str, Any]) -> None:
    metadata = takeover.find_metadata(metadata_of(positions["embedded"]).text)
    assert positions["embedded"]["offset"] == len(RECORDS)
    assert metadata is not None
    assert (metadata.token, metadata.published, metadata.done) == ("token-1", len(DONE), "")


def test_it_says_which_topic_it_counts_in(positions: dict[str, Any]) -> None:
    assert [metadata_of(each).partitions for each in positions.values()] == [1, 1]
    assert all(each["metadata"] == metadata_of(each).encode("t-0") for each in positions.values())


@pytest.mark.slow
def test_a_worker_that_finds_it_tells_nothing_twice(kafka: KafkaServer, positions: dict[str, Any]) -> None:
    """On another topic with the same records: its id is all that is changed in what was kept."""
    with closing(KafkaStage(kafka, partitions=1)) as stage:
        with closing(KafkaWorker(stage)) as history:
            history.run_until_owned()
            history.live_until_read()
        (partition,) = stage.partitions
        begun = stage.committed(partition)
        assert begun is not None
        here = metadata_of({"metadata": begun.metadata})
        send(stage)
        left = msgspec.structs.replace(metadata_of(positions["none"]), topic_id=here.topic_id)
        stage.set_position(partition, positions["none"]["offset"], left.encode("t-0"))
        stage.send(wire("owned", "A", 1, "owned#A#1"), wire("new", "A", 1, "new#A#1"))
        with closing(KafkaWorker(stage)) as history:
            history.live_until_read()
        assert [each.key.decode() for each in stage.outputs()] == ["owned", "owned", "new"]
