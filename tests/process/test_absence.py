"""A service that is down for longer than its retention, while its input grows: it continues as if it had not been down."""

from collections.abc import Callable
from time import monotonic

import pytest
from harness.nightly import at_night
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService, kafka_overrides
from harness.waiting import wait_until

from notification_service.status.report import State, StatusReport
from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow

RETENTION_SECONDS = 3
RETENTION = (
    f"{RESEQUENCER}.processing-timeout=500ms",
    f"{RESEQUENCER}.idle-timeout=1s",
    f"{RESEQUENCER}.retention={RETENTION_SECONDS}s",
)
BACKLOG = ("simulate", "--backlog", "--units", "2400", "--seed", "12", "--duplicates", "5%")
"""So many records that a service needs a while: when it is stopped, handled units are idle and the rest is unread."""

AT_ONCE = 20
SOME, MOST = 200, 15_000
Make = Callable[..., OperatedService]


def on_kafka(kafka: KafkaServer, name: str) -> tuple[str, ...]:
    topics = [f"{name}-{each}" for each in ("in", "out", "dead")]
    kafka.create_topics(*topics, partitions=2)
    return kafka_overrides(kafka.bootstrap, *topics, group=name)


def kept_in(request: pytest.FixtureRequest, storage: str, name: str) -> list[str]:
    if storage == "none":
        return [f"{RESEQUENCER}.acknowledge=when-handled"]
    if storage == "redis":
        url = request.getfixturevalue("redis_server").url
        return [f"{NOTIFICATION}.storage.namespace={name}", f'{NOTIFICATION}.storage.redis.url="{url}"']
    if storage == "infinispan":
        url = request.getfixturevalue("infinispan").url
        return [f"{NOTIFICATION}.storage.infinispan.cache={name}", f'{NOTIFICATION}.storage.infinispan.url="{url}"']
    return []


@pytest.fixture(params=["embedded on files", *at_night("processes", "redis on kafka", "none on kafka", "infinispan on kafka")])
def service(request: pytest.FixtureRequest, new_service: Make, fresh_name: Callable[[str], str]) -> OperatedService:
    storage, _, transport = request.param.split()
    name = fresh_name("absence")
    transports = on_kafka(request.getfixturevalue("kafka"), name) if transport == "kafka" else ()
    return new_service(
        f"{RESEQUENCER}.storage-type={storage}",
        f"{INGRESS}.batch-size={AT_ONCE}",
        *RETENTION,
        *transports,
        *kept_in(request, storage, name),
    )


def test_what_was_handled_before_a_long_stop_is_known_to_what_lay_unread_meanwhile(service: OperatedService) -> None:
    assert service.verb(*BACKLOG).returncode == 0
    service.start()
    before = service.wait_for_report(lambda report: _handled(report) >= SOME, "some of it is handled")
    assert service.stop() == 0
    assert _handled(before) < MOST, "it was not stopped in the middle"
    stopped_at = monotonic()
    wait_until(lambda: monotonic() > stopped_at + 2 * RETENTION_SECONDS, "the stop is longer than the retention")
    service.start()
    service.wait_for_report(_is_done, "all is read and nothing waits")
    assert service.stop() == 0
    verified = service.verb("verify")
    assert "every promise was held" in verified.stdout, verified.stdout


def _handled(report: StatusReport) -> int:
    return sum(report.notifications.values())


def _is_done(report: StatusReport) -> bool:
    is_read = bool(report.partitions) and all(each.lag == 0 and each.unpublished == 0 for each in report.partitions)
    return report.state == State.READY and is_read and report.units.waiting == 0
