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
BACKLOG = ("simulate", "--backlog", "--seed", "12", "--duplicates", "5%", "--units")
UNITS = {"files": 2_400, "kafka": 800}
"""So many units that a service needs a while: when it is stopped, handled units are idle and the rest is unread."""

AT_ONCE = 20
SOME, EACH = 200, 6
"""It is stopped after some notifications, and before each unit has so many."""
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
def service(request: pytest.FixtureRequest, new_service: Make, fresh_name: Callable[[str], str]) -> tuple[OperatedService, int]:
    """A service, and how many units it is to get."""
    storage, _, transport = request.param.split()
    name = fresh_name("absence")
    transports = on_kafka(request.getfixturevalue("kafka"), name) if transport == "kafka" else ()
    made = new_service(
        f"{RESEQUENCER}.storage-type={storage}",
        f"{INGRESS}.batch-size={AT_ONCE}",
        *RETENTION,
        *transports,
        *kept_in(request, storage, name),
    )
    return made, UNITS[transport]


def test_what_was_handled_before_a_long_stop_is_known_to_what_lay_unread_meanwhile(
    service: tuple[OperatedService, int],
) -> None:
    operated, units = service
    assert operated.verb(*BACKLOG, str(units)).returncode == 0
    operated.start()
    before = operated.wait_for_report(lambda report: _handled(report) >= SOME, "some of it is handled")
    assert operated.stop() == 0
    assert _handled(before) < EACH * units, "it was not stopped in the middle"
    stopped_at = monotonic()
    wait_until(lambda: monotonic() > stopped_at + 2 * RETENTION_SECONDS, "the stop is longer than the retention")
    operated.start()
    operated.wait_for_report(_is_done, "all is read and nothing waits")
    assert operated.stop() == 0
    verified = operated.verb("verify")
    assert "every promise was held" in verified.stdout, verified.stdout


def _handled(report: StatusReport) -> int:
    return sum(report.notifications.values())


def _is_done(report: StatusReport) -> bool:
    is_read = bool(report.partitions) and all(each.lag == 0 and each.unpublished == 0 for each in report.partitions)
    return report.state == State.READY and is_read and report.units.waiting == 0
