"""Bridge, groups, delivery and a schedule of a service whose clock is a year off for ten seconds: nothing is lost or doubled."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
from harness.fault_table import ClockRow, as_property
from harness.nightly import at_night
from harness.processes.bridges import BridgeStage
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.scripted_receiver import OK, Call, Reply, ScriptedReceiver, scripted_receiver
from harness.set_clock.set_clock import SetClock
from harness.waiting import wait_until
from kafka import KafkaConsumer

from notification_service.delivery.schedules.core import make_request
from notification_service.simulator.verify.verdict import Deviation
from resequencer.clock import Instant
from servers.artemis import ArtemisServer
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import read_to_end

AGGREGATION, DELIVERY = f"{NOTIFICATION}.aggregation", f"{NOTIFICATION}.delivery"
CUSTOMER = "CUSTOMER-1"
WRONG_SECONDS, TRUSTED_SECONDS = 10, 20
LATEST_SECONDS = 90
"""A worker and a receiver's gate look again after half a minute at the latest; the rest is for a busy machine."""
LOAD = ("--rate", "60/s", "--window", "100", "--losses", "0", "--late", "0", "--garbage", "0", "--duplicates", "0.02")
MINUTE_MS = 60_000
OF_GROUPS = [each for each in Deviation if "group" in each.value or "fact" in each.value]

Case = tuple[str, int]
Notified = Callable[[], Sequence[tuple[str, str]]]
"""Returns unit and id of each notification, in order in each unit."""


class Stage:
    """A service whose processes have a clock of their own, and what leaves it. `notified` reads its notifications."""

    def __init__(self, daemon: Daemon, clock: SetClock, receiver: ScriptedReceiver, notified: Notified) -> None:
        self.daemon, self.clock, self.receiver, self.notified = daemon, clock, receiver, notified
        service = daemon.service
        self._operator = OperatedService(service.directory, *service.arguments[1:])
        self._seeds = count(1)

    def begin_feeding(self, units: int) -> subprocess.Popen[bytes]:
        """Publish envelopes of so many payments of messages to the broker of the bridge, some 60 a second."""
        return self._operator.begin_verb("simulate", "--units", str(units), "--seed", str(next(self._seeds)), *LOAD)

    def follow(self) -> float:
        """Wait until all has left and was counted that was published; return when that was."""
        self._operator.verb("verify", "--follow", "--give-up-after", "90s")
        return monotonic()

    def verify(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._operator.verb("verify", "--json").stdout)
        return found

    def taken(self) -> list[tuple[str, str]]:
        """Unit and id of each notification that the receiver has taken, in order, without requests of the schedule."""
        return [each for each in self.receiver.taken if each[0] != CUSTOMER]

    def ticks(self) -> list[Call]:
        return [each for each in list(self.receiver.calls) if each.key == CUSTOMER and each.status == OK.status]

    def wait_for_second(self, second: int) -> None:
        wait_until(lambda: second <= self.clock.right_ms() // 1_000 % 60 < second + 2, f"it is {second} s after a full minute")


def answer(key: str, id_: str, nth: int) -> Reply:
    """Some calls are slow, and some have to be made again."""
    chosen = sum(id_.encode()) % 40
    if chosen == 0 and nth == 1:
        return Reply(500)
    return Reply(OK.status, after_seconds=4) if chosen == 1 and key != CUSTOMER else OK


@pytest.fixture
def receiver() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as made:
        made.answers = answer
        yield made


@pytest.fixture
def new_stage(
    new_daemon: Callable[..., Daemon],
    kafka: KafkaServer,
    artemis: ArtemisServer,
    fresh_name: Callable[[str], str],
    receiver: ScriptedReceiver,
    tmp_path: Path,
) -> Callable[[str], Stage]:
    clock = SetClock(tmp_path)

    def make(transport: str) -> Stage:
        of_bridge = BridgeStage(artemis, kafka, fresh_name).overrides("mqtt", transport, transport)
        topics = {name: fresh_name(name) for name in ("facts", "reports", "dead-letters")}
        events = fresh_name("events")
        kafka.create_topics(*topics.values(), events, partitions=2)
        overrides = (
            *of_bridge,
            f"{NOTIFICATION} {{ storage.namespace = {fresh_name('namespace')}, clock.trusted-after = {TRUSTED_SECONDS}s }}",
            f"{RESEQUENCER}.stash-timeout=5m",
            f"{AGGREGATION} {{ enabled = true, deadline = 1h, values.topic = {fresh_name('values')} }}",
            *(f"{AGGREGATION}.{name}.topic={topic}" for name, topic in topics.items()),
            f"{DELIVERY} {{ worker {{ poll = 100ms, most-poll = 500ms }}, events.topic = {events} }}",
            f'{DELIVERY}.receivers.r {{ url = "{receiver.url}", retry.first = 3s, suspension {{ probe = 3s, most = 10s }} }}',
            f'{DELIVERY}.schedules.each-minute {{ cron = "* * * * *", receiver = r, keys.names = [{CUSTOMER}] }}',
        )
        daemon = new_daemon(*overrides, environment=clock.environment)

        def in_file() -> list[tuple[str, str]]:
            return [(each["key"], each["headers"]["notification-id"]) for each in daemon.service.notifications()]

        def in_topic() -> list[tuple[str, str]]:
            (topic,) = (each.rpartition("=")[2] for each in overrides if each.startswith(f"{NOTIFICATION}.kafka.producer.topic="))
            options = {"isolation_level": "read_committed", "enable_auto_commit": False}
            with closing(KafkaConsumer(bootstrap_servers=kafka.bootstrap, **options)) as reader:
                found = read_to_end(reader, topic)
            return [(each.key.decode(), dict(each.headers)["notification-id"].decode()) for each in found]

        return Stage(daemon, clock, receiver, in_topic if transport == "kafka" else in_file)

    return make


@pytest.mark.parametrize(
    ("transport", "days"), at_night("clocks", *((transport, days) for transport in ("kafka", "file") for days in (365, -365)))
)
def test_a_clock_that_is_a_year_off_for_ten_seconds_costs_nothing(
    new_stage: Callable[[str], Stage], transport: str, days: int, record_property: Callable[[str, object], None]
) -> None:
    stage = new_stage(transport)
    clock, service = stage.clock, stage.daemon.service
    clock.begin_at_second(50)
    stage.daemon.start()
    assert stage.begin_feeding(20).wait() == 0
    clock.wait_until_settled(service.run_directory, "worker-0", "delivery-0", "aggregation-0")
    stage.wait_for_second(49)
    feeding = stage.begin_feeding(120)
    stage.wait_for_second(57)
    clock.set(days)
    wrong = monotonic()
    wait_until(lambda: monotonic() > wrong + WRONG_SECONDS, "the clock is wrong for so long")
    clock.set(0)
    right, right_ms = monotonic(), clock.right_ms()
    assert right - wrong < TRUSTED_SECONDS, "it is not believed so soon"

    assert feeding.wait() == 0
    left = stage.follow() - right
    delivered = wait_until(lambda: {*stage.notified()} <= {*stage.taken()} and monotonic(), "all is delivered") - right
    assert stage.begin_feeding(20).wait() == 0
    stage.follow()
    wait_until(lambda: clock.right_ms() > right_ms + MINUTE_MS, "the next tick is over")
    wait_until(lambda: {*stage.notified()} <= {*stage.taken()}, "all is delivered")
    case = (transport, days)
    rows = [*_of_output(stage, case, left), _of_delivery(stage, case, delivered), _of_schedule(stage, case, right_ms)]
    for row in rows:
        record_property(*as_property(row))
    assert service.verb("stop").returncode == 0
    assert [row for row in rows if row.bad or row.late_seconds > LATEST_SECONDS] == []


def _of_output(stage: Stage, case: Case, late: float) -> tuple[ClockRow, ClockRow]:
    answer = stage.verify()
    counts: Counter[str] = Counter(answer["counts"])
    of_groups = {each.value: counts.pop(each.value) for each in OF_GROUPS}
    lost, doubled, out_of_order, early = map(
        counts.pop, (Deviation.LOST, Deviation.DOUBLED, Deviation.OUT_OF_ORDER, Deviation.FALSELY_MARKED)
    )
    output = ClockRow("output", *case, answer["notifications"], lost, doubled, out_of_order, early, counts.total(), late)
    lost, doubled, early = (
        of_groups.pop(each)
        for each in (Deviation.GROUP_REPORT_MISSING, Deviation.GROUP_REPORT_DOUBLED, Deviation.GROUP_REPORT_UNEXPECTED)
    )
    groups = ClockRow("groups", *case, answer["groups"]["reports"], lost, doubled, 0, early, sum(of_groups.values()), late)
    return output, groups


def _of_delivery(stage: Stage, case: Case, late: float) -> ClockRow:
    notified, taken = stage.notified(), stage.taken()
    doubled = len(taken) - len({*taken})
    order = {unit: [id_ for each, id_ in notified if each == unit] for unit, _ in notified}
    out_of_order = sum(stage.receiver.ids(unit) != ids for unit, ids in order.items())
    unknown = len({*taken} - {*notified})
    return ClockRow("delivery", *case, len(notified), len({*notified} - {*taken}), doubled, out_of_order, 0, unknown, late)


def _of_schedule(stage: Stage, case: Case, right_ms: Instant) -> ClockRow:
    """Each full minute since the first tick has one request, and no other instant has any."""
    calls, now, passed = stage.ticks(), stage.clock.right_ms(), monotonic()
    minutes = range(right_ms // MINUTE_MS * MINUTE_MS - 9 * MINUTE_MS, now + 1, MINUTE_MS)
    tick_of = {make_request("each-minute", each, CUSTOMER.encode(), None, msgspec.Raw(b"{}")).id: each for each in minutes}
    made = Counter(tick_of[call.id] for call in calls if call.id in tick_of)
    due = [each for each in minutes if each >= min(made)]
    lost = sum(each not in made for each in due)
    late = max((now - tick_of[call.id]) / 1_000 - (passed - call.at) for call in calls if call.id in tick_of)
    unknown = sum(call.id not in tick_of for call in calls)
    return ClockRow("schedule", *case, len(due), lost, made.total() - len(made), 0, 0, unknown, late)
