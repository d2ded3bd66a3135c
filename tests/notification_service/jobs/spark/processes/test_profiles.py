"""From records on a real Kafka to a deadline that is learned from them, and a service that uses it."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.processes.operated_service import EVENTS, FLOW, INGRESS, NOTIFICATION, RESEQUENCER, OperatedService, envelope_line
from harness.spark.configured_build import archive_as_configured, build_as_configured
from harness.spark.options import fast_sources
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from notification_service.connectors.line_format import decode_line
from notification_service.lookups.shapes import ANY, PROFILES
from notification_service.status.report import StatusReport
from notification_service.supervision.system_clock import SystemClock
from servers.kafka import KafkaServer

LATE_BY_MS = 1_700
UNITS = 20


@pytest.fixture
def service(kafka: KafkaServer, fresh_name: Callable[[str], str], tmp_path: Path) -> Iterator[OperatedService]:
    """A service that without a profile would wait for ten minutes, which is also the longest deadline of a profile."""
    source, output, dead = fresh_name("in"), fresh_name("out"), fresh_name("dead")
    kafka.create_topics(source, output, dead, partitions=1)
    profiles = f"[{{ format = archive, least-late = {UNITS} }}]"
    fast_sources(tmp_path, f"sources {{ institutions = [], {PROFILES} = {profiles} }}")
    (tmp_path / "service.conf").write_text(
        f"""
        {INGRESS}.kafka.consumer.topic = {source}
        {INGRESS}.kafka.consumer.kafka-clients {{ bootstrap.servers = "{kafka.bootstrap}", group.id = {fresh_name("group")} }}
        {NOTIFICATION} {{ kafka.producer.topic = {output}, dead-letters.topic = {dead}, lookups.sources = "fast.conf" }}
        {RESEQUENCER} {{ storage-type = embedded, strategy = SEQUENCE }}
        {RESEQUENCER} {{ processing-timeout = 4m, handling-limit = 4m, idle-timeout = 4m }}
        {RESEQUENCER} {{ stash-timeout = learned, learned-timeout {{ at-least = 1s, at-most = 10m }} }}
        """
    )
    made = OperatedService(tmp_path, config="service.conf")
    _send(kafka.bootstrap, source)
    yield made
    made.clear_away()


def _send(bootstrap: str, topic: str) -> None:
    """Send twenty units whose first envelope comes after the second, by their own instants, and one whose first never comes."""
    at = SystemClock().now() - 600_000
    records = [(f"uow-{unit}", number, late_ms) for unit in range(UNITS) for number, late_ms in ((2, 0), (1, LATE_BY_MS))]
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for unit, number, late_ms in [*records, ("uow-lonely", 2, 0)]:
            line = decode_line(envelope_line(unit, number) + b"\n")
            producer.send(topic, line.value, line.key, list(line.headers), timestamp_ms=at + late_ms)
        producer.flush()


def test_what_never_comes_is_given_up_when_as_late_ones_would_have_come(
    spark: SparkSession, service: OperatedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(service.directory)
    configured = Path("service.conf")
    archive_as_configured(spark, configured)
    built = build_as_configured(spark, configured)
    (source,) = built.lookups[-1].sources
    assert source.remark == f"records of 30 days: {2 * UNITS + 1}; of these no envelopes: 0, without a timestamp: 0"
    shown = service.verb("lookups", "show", PROFILES, ANY, FLOW)
    assert shown.stdout.splitlines() == [
        f"usual_ms: {LATE_BY_MS}", f"latest_ms: {LATE_BY_MS}", f"late: {UNITS}", "usual_events: 2", "most_events: 2",
    ]  # fmt: skip

    def has_given_up(report: StatusReport) -> bool:
        return report.counts.get("released_units", 0) == 1

    service.start()
    report = service.wait_for_report(has_given_up, "the lonely one is given up, long before ten minutes")
    assert sum(report.notifications.values()) == 2 * UNITS + 1, EVENTS
    assert report.longest_wait_ms >= LATE_BY_MS
    assert report.deadlines == "learned, 1 completion-profile, between 1s and 10m; 10m for other flows"
    assert service.stop() == 0
