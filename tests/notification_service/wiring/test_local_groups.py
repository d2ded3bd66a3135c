"""Groups on real brokers as the console reads them: the copy of their counts, the stream of completions, and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from harness.nightly import at_night
from harness.processes.operated_service import INGRESS, NOTIFICATION
from harness.steady import steady
from harness.waiting import DEADLINE_SECONDS, wait_until

from guardian.ports import TransportUnavailable
from notification_service.aggregation.payments.commands import StatedMessage, StatusFact
from notification_service.aggregation.runner import StoreRunner
from notification_service.configuration.configuration import Configuration
from notification_service.console.groups import GroupFilter, Groups, describe_report
from notification_service.console.stores.feed import StoreFeed, place_of, place_text
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.aggregation import make_aggregate, open_commands, open_store, payments_store, stores_of
from notification_service.wiring.console import LocalStore
from servers.kafka import KafkaServer
from tests.notification_service.console.groups.test_completion_stream import Client

pytestmark = pytest.mark.slow
PARTITIONS = 3


class Counted:
    """A service's facts on topics, and a worker that counts them when it is told to."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        names, stop = next(stores_of(configuration)), StopSignal()
        clock = steady(SystemClock())
        opened = partial(open_store, configuration, names, 0, stop, clock)
        self._runner = StoreRunner("payments", make_aggregate(configuration, "payments"), opened, clock, stop.wait)
        self._commands = open_commands(configuration, names)
        self._applied = 0

    def status(self, group: str, unit: str, status: str = "ACCC", total: int = 1) -> None:
        message = StatedMessage(f"M-{group}", "pain.001.001.09", None, str(total))
        self._commands.update(
            group, unit, msgspec.json.encode(StatusFact(unit, status, original=message, party=msgspec.Raw(b"{}")))
        )
        self._applied += 1

    def count(self) -> None:
        def is_counted() -> bool:
            self._runner.turn()
            return self._runner.report().applied >= self._applied

        wait_until(is_counted, "all is counted")

    def close(self) -> None:
        self._runner.close()
        self._commands.close()


def configured(
    kafka: KafkaServer, loaded: Callable[..., Configuration], directory: Path, timeout_ms: int = 20_000
) -> Configuration:
    name = uuid4().hex[:12]
    topics = [f"{each}-{name}" for each in ("in", "out", "dead", "facts", "values", "reports", "group-dead")]
    kafka.create_topics(*topics[:4], *topics[5:], partitions=PARTITIONS)
    kafka.create_topics(topics[4], partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    clients = f'bootstrap.servers = "{kafka.bootstrap}"'
    consumer = f"{clients}, group.id = group-{name}, default.api.timeout.ms = {timeout_ms}"
    return loaded(f"""
        {INGRESS} {{ transport = kafka, kafka.consumer {{ topic = {topics[0]}, kafka-clients {{ {consumer} }} }} }}
        {NOTIFICATION} {{
          run-directory = "{directory}", storage.namespace = "n{name}", dead-letters.topic = {topics[2]}
          transport = kafka, kafka.producer {{ topic = {topics[1]}, kafka-clients {{ {clients} }} }}
          aggregation {{
            enabled = true, facts.topic = {topics[3]}, values.topic = {topics[4]}
            reports.topic = {topics[5]}, dead-letters.topic = {topics[6]}
          }}
        }}
    """)


def wait_for(groups: Groups, question: Callable[[], object]) -> None:
    """Refresh until it is so: a transaction is decided a moment after its end, and a look does not wait for that."""

    def ask() -> object:
        groups.watch.refresh()
        return question()

    wait_until(ask, "the console has read it")


def listen(client: Client, feed: StoreFeed, groups: Groups, until: int) -> None:
    """Listen until so many completions were told of, again and again if it is cut off."""

    async def follow() -> None:
        while len(client.groups) < until or not client.last:
            await client.follow(feed, groups, until)

    asyncio.run(follow())


def states(groups: Groups) -> dict[str, int]:
    return {} if groups.watch.totals is None else dict(groups.watch.totals.by_state)


@pytest.fixture
def counted(kafka: KafkaServer, loaded: Callable[..., Configuration], tmp_path: Path) -> Iterator[Counted]:
    with closing(Counted(configured(kafka, loaded, tmp_path / "run"))) as made:
        yield made


@pytest.fixture
def groups(counted: Counted) -> Iterator[Groups]:
    with closing(Groups(LocalStore(counted.configuration, payments_store(counted.configuration)), SystemClock())) as made:
        yield made


def test_the_copy_follows_what_was_counted_and_a_second_console_has_one_of_its_own(counted: Counted, groups: Groups) -> None:
    for number in range(20):
        counted.status(f"G{number}", f"u{number}", "ACCC" if number % 2 else "ACSP")
    counted.count()
    wait_for(groups, lambda: states(groups) == {"complete": 10, "open": 10})
    counted.status("G0", "u0")
    counted.count()
    wait_for(groups, lambda: states(groups) == {"complete": 11, "open": 9})
    assert "G0" not in groups.watch.find(GroupFilter("open"), 100).keys
    with groups.watch.reading() as view:
        assert [unit for unit, _ in view.members("G7", "", 10)] == ["u7"]
    with closing(Groups(LocalStore(counted.configuration, payments_store(counted.configuration)), SystemClock())) as other:
        assert other.source.claim() != groups.source.claim()
        other.watch.refresh()
        assert other.watch.totals == groups.watch.totals


def test_a_console_that_is_started_again_goes_on_with_its_copy(counted: Counted) -> None:
    counted.status("G1", "u1")
    counted.count()
    source = LocalStore(counted.configuration, payments_store(counted.configuration))
    for _ in range(2):
        with closing(Groups(source, SystemClock())) as groups:
            wait_for(groups, lambda: states(groups) == {"complete": 1})
    file = source.claim()
    assert len(list(file.glob("partition-*.db"))) == PARTITIONS


def test_an_operator_closes_a_group_and_the_page_learns_of_it(counted: Counted, groups: Groups) -> None:
    counted.status("G1", "u1", total=3)
    counted.count()
    groups.close_group("G1", "ann", "the sender told us")
    counted._applied += 1
    counted.count()
    wait_for(groups, lambda: groups.watch.find(GroupFilter("closed"), 10).keys == ("G1",))


@pytest.mark.parametrize("kept", [2, *at_night("stores", 10_000)])
def test_completions_are_told_once_whoever_resumes(counted: Counted, groups: Groups, kept: int) -> None:
    """With little kept in memory they are read from the topic again."""
    feed = StoreFeed(groups.source.open_completions, SystemClock(), describe_report, max_kept=kept)
    client = Client()
    listen(client, feed, groups, 0)
    for turn in range(3):
        for number in range(10):
            counted.status(f"T{turn}G{number}", f"t{turn}u{number}")
        counted.count()
        listen(client, feed, groups, 10 * turn + 4)
    listen(client, feed, groups, 30)
    assert sorted(client.groups) == sorted(f"T{turn}G{number}" for turn in range(3) for number in range(10))
    assert set(place_of(client.last)) == set(range(PARTITIONS))
    again = Client(place_text(dict.fromkeys(range(PARTITIONS), 0)))
    listen(again, feed, groups, 30)
    feed.close()
    assert sorted(again.groups) == sorted(client.groups)


def test_brokers_that_are_away_are_told_with_since_when_and_what_was_read_stays(
    struck_server: Callable[..., KafkaServer], loaded: Callable[..., Configuration], tmp_path: Path
) -> None:
    kafka = struck_server(KafkaServer)
    with closing(Counted(configured(kafka, loaded, tmp_path / "run", timeout_ms=2_000))) as counted:
        groups = Groups(LocalStore(counted.configuration, payments_store(counted.configuration)), SystemClock())
        client = Client()
        counted.status("G1", "u1", "ACSP")
        counted.count()
        wait_for(groups, lambda: states(groups) == {"open": 1})
        before = groups.watch.look()
        assert before.problem is None

        listen(client, groups.feed, groups, 0)
        kafka.kill()
        with ThreadPoolExecutor(1) as threads:
            listening = threads.submit(listen, client, groups.feed, groups, 1)
            groups.watch.refresh()
            now = groups.watch.look()
            assert now.problem is not None
            assert now.since is not None
            assert now.as_of == before.as_of
            with groups.watch.reading() as view:
                assert view.find("G1") is not None
            assert groups.watch.glance() is None, "old counts are no metrics"
            kafka.start()
            wait_until(lambda: is_given(counted), "the brokers take it")
            counted.count()
            listening.result(DEADLINE_SECONDS)
        wait_for(groups, lambda: states(groups) == {"complete": 1})
        assert groups.watch.look().problem is None
        groups.close()
        assert client.groups == ["G1"]


def is_given(counted: Counted) -> bool:
    try:
        counted.status("G1", "u1")
    except TransportUnavailable:
        return False
    return True
