"""The sources of jobs from a real topic: what it held when the job was started, of a time, or from an offset of a partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.receivers import receiver

from notification_service.command_line import main
from notification_service.configuration.configuration import Configuration, load
from notification_service.delivery.errors import JobRefused
from notification_service.wiring.delivery import make_ledger
from notification_service.wiring.delivery_sources import find_service, live_source, open_feed, source_of_topic

if TYPE_CHECKING:
    from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


@pytest.fixture
def file(topics: KafkaStage, tmp_path: Path) -> Path:
    path = tmp_path / "service.conf"
    path.write_text(f"""
        include "{Path("conf/application.conf").absolute()}"
        ipf.processing-data.ingress.transport = kafka
        ipf.processing-data.ingress.kafka.consumer {{
          topic = {topics.topics.notifications}  # The notifications are those on the topic to which the stage sends.
          kafka-clients {{ bootstrap.servers = "{topics.bootstrap}", group.id = {topics.group} }}
        }}
        payment-status-notification {{
          transport = kafka, run-directory = "{tmp_path}"
          kafka.producer.topic = {topics.topics.input}, dead-letters.topic = {topics.topics.dead_letters}
          delivery.receivers.tracker.url = "http://127.0.0.1:1"
        }}
    """)
    return path


@pytest.fixture
def configuration(file: Path) -> Configuration:
    return load(file)


def read(configuration: Configuration, source: str) -> list[bytes]:
    """Read until the source ends."""
    feed, positions, found = open_feed(configuration, source, receiver()), dict[str, int](), list[bytes]()
    while not (portion := feed.read(positions, 3)).seals:
        found += [each.value for each in portion.items]
        positions |= portion.positions
    feed.close()
    return sorted([*found, *(each.value for each in portion.items)])


def test_a_job_has_what_the_topic_held_when_it_was_started(topics: KafkaStage, configuration: Configuration) -> None:
    topics.send(b"1", b"2", b"3", key=b"u")
    topics.send(b"4", key=b"v", partition=1)
    source = source_of_topic(configuration)
    topics.send(b"later", key=b"u")
    assert read(configuration, source) == [b"1", b"2", b"3", b"4"]
    assert read(configuration, source_of_topic(configuration, until=1)) == []
    assert read(configuration, source_of_topic(configuration, since=4_000_000_000_000)) == []


def test_in_a_shared_ledger_the_live_source_is_the_service_s_own_and_its_parts_are_known(
    topics: KafkaStage, file: Path, configuration: Configuration
) -> None:
    assert live_source(configuration, find_service(configuration)) == ("live", None)
    with file.open("a") as more:
        more.write("payment-status-notification.storage.namespace = domestic\n")
        more.write('payment-status-notification.delivery.ledger.url = "postgresql://ledger.example/l"\n')
    shared = load(file)
    source, former = live_source(shared, find_service(shared))
    assert source == "live:domestic"
    assert former is not None
    assert (former.source, former.shares_parts) == ("live", True)
    topics.send(b"1", key=b"u")
    feed, positions = open_feed(shared, source, receiver()), dict[str, int]()
    while not (portion := feed.read(positions, 3)).items:
        positions |= portion.positions
    feed.close()
    assert portion.positions.keys() <= set(former.find_parts())


def test_a_job_from_an_offset_has_this_partition_alone(topics: KafkaStage, configuration: Configuration) -> None:
    topics.send(*(b"%d" % number for number in range(8)), key=b"u")
    topics.send(b"other", key=b"v", partition=1)
    assert read(configuration, source_of_topic(configuration, offsets={0: 5})) == [b"5", b"6", b"7"]
    assert read(configuration, source_of_topic(configuration, offsets={0: 7, 1: 0})) == [b"7", b"other"]
    assert read(configuration, source_of_topic(configuration, offsets={0: 8})) == []
    with pytest.raises(JobRefused, match="-0 holds the offsets from 0 to 8, and not 9"):
        source_of_topic(configuration, offsets={0: 9})
    with pytest.raises(JobRefused, match="has no partition 7"):
        source_of_topic(configuration, offsets={7: 0})


def test_the_command_starts_a_job_from_an_offset(
    topics: KafkaStage, file: Path, configuration: Configuration, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.send(b"1", b"2", b"3", key=b"u")
    start = ["delivery", "start", "--config", str(file), "monday", "tracker"]
    assert main([*start, "--topic", "--from-offset", "0@2"]) == 0
    ledger = make_ledger(configuration)
    sources = dict(ledger.open_jobs("tracker"))
    ledger.close()
    assert read(configuration, sources["monday"]) == [b"3"]
    assert main([*start, "--topic", "--from-offset", "0@1"]) == 1
    assert "choose another name" in capsys.readouterr().err, "it would deliver something else"
    start[4] = "tuesday"
    assert main([*start, "--from-offset", "0@2"]) == 1
    assert "--from-offset goes with --topic" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*start, "--topic", "--from-offset", "2"])
    assert "2 is not PARTITION@OFFSET" in capsys.readouterr().err
