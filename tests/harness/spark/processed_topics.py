"""A service on a real broker that has processed simulated payments, and questions about its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.spark.options import fast_sources
from harness.waiting import wait_ms
from kafka import TopicPartition
from msgspec.structs import replace

from notification_service.commands.audit import audit_settings
from notification_service.configuration.configuration import load
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.jobs.audit.counting import summarize
from notification_service.jobs.audit.job import audit_records
from notification_service.jobs.audit.scopes import Scope, topics_scope
from notification_service.jobs.audit.summary import AuditSummary
from notification_service.status.report import State, StatusReport
from notification_service.wiring.composition import make_order_book
from resequencer.clock import instant_of
from resequencer.order import Order, OrderKind
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST_WAIT_SECONDS = 600


class ProcessedTopics(NamedTuple):
    """A service that has processed simulated payments, and has ended."""

    spark: SparkSession
    stage: KafkaStage
    service: OperatedService
    orders: int
    """How many orders were given."""

    def audit(self, scope: Scope, name: str) -> AuditSummary:
        settings = audit_settings(load(self.service.directory / "service.conf"), dict(scope.settled))
        return summarize(audit_records(self.spark, scope, settings, self.service.directory / name))

    def scope(self, **topics: str) -> Scope:
        return topics_scope(self.spark, self.settings(**topics), wait_ms)

    def settings(self, **topics: str) -> KafkaSettings:
        """Return the settings with other topics in place of the named ones."""
        settings = self.stage.settings()
        return replace(settings, topics=replace(settings.topics, **topics))


@contextmanager
def live(spark: SparkSession, kafka: KafkaServer, directory: Path) -> Iterator[ProcessedTopics]:
    """Run the service. The run takes seconds, so all tests share its output and only read it."""
    stage = KafkaStage(kafka, has_orders=True)
    fast_sources(directory)
    names, clients = stage.topics, f'{{ bootstrap.servers = "{stage.bootstrap}", group.id = {stage.group} }}'
    (directory / "service.conf").write_text(f"""
        {INGRESS} {{ transport = kafka, kafka.consumer {{ topic = {names.input}, kafka-clients {clients} }} }}
        {NOTIFICATION} {{
          run-directory = "{directory}/run"
          transport = kafka, kafka.producer.topic = {names.notifications}, dead-letters.topic = {names.dead_letters}
          lookups.sources = "{directory}/fast.conf"
          resequencer {{ storage-type = embedded, strategy = SEQUENCE, stash-timeout = 15s }}
          orders {{ enabled = true, topic = {names.orders}, outcomes-topic = {names.order_outcomes} }}
        }}
    """)
    service = OperatedService(directory, config="service.conf")
    service.run_directory = directory / "run"
    try:
        service.start().wait_for_report(lambda report: report.state == State.READY, "ready", LONGEST_WAIT_SECONDS)
        simulated = service.verb(
            "simulate",
            "--units",
            "40",
            "--seed",
            "7",
            "--late",
            "0",
            "--losses",
            "5%",
            "--garbage",
            "2%",
            seconds=LONGEST_WAIT_SECONDS,
        )
        assert simulated.returncode == 0, simulated.stderr
        orders = release_some(service, stage)
        service.wait_for_report(has_nothing_left(stage), "everything is read and nothing waits", LONGEST_WAIT_SECONDS)
        assert service.stop() == 0
        yield ProcessedTopics(spark, stage, service, orders)
    finally:
        service.clear_away()
        stage.close()


def release_some(service: OperatedService, stage: KafkaStage) -> int:
    """Order the release of some units that wait for what is lost, and return how many; a deadline releases the others."""
    is_read = has_read_all(stage)
    report = service.wait_for_report(
        lambda report: is_read(report) and bool(report.oldest_waits), "all is read and a unit waits", LONGEST_WAIT_SECONDS
    )
    waits = report.oldest_waits[-5:]
    with closing(make_order_book(load(service.directory / "service.conf"))) as book:
        for number, each in enumerate(waits):
            partition = Partition.find(each.partition)
            assert partition is not None
            since = instant_of(each.since)
            order = Order(
                id=f"order-{number}",
                kind=OrderKind.RELEASE,
                by="ann",
                because="a test",
                at=since,
                unit=each.unit,
                waits_for=each.waits_for,
                since=since,
                despite_backlog=True,
            )
            book.append(partition, order)
    return len(waits)


def has_nothing_left(stage: KafkaStage) -> Callable[[StatusReport], bool]:
    is_read = has_read_all(stage)
    return lambda report: is_read(report) and not report.units.waiting and not any(each.unpublished for each in report.partitions)


def has_read_all(stage: KafkaStage) -> Callable[[StatusReport], bool]:
    with closing(stage.reader()) as reader:
        ends = reader.end_offsets([TopicPartition(*each) for each in stage.partitions])

    def is_read(report: StatusReport) -> bool:
        read = {int(each.partition.rpartition("-")[2]): each.read_to for each in report.partitions}
        return read == {name.partition: end for name, end in ends.items()}

    return is_read
