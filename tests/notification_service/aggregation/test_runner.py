"""The runner of a store: what a partition that cannot be taken over does to the others, and to the log."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from harness.steady import steady

from guardian.ports import Polled, TransportRefused, TransportUnavailable
from notification_service.aggregation.port import Step
from notification_service.aggregation.runner import StoreRunner
from resequencer.record import Partition
from tests.notification_service.aggregation.stores.stages import Clock
from tests.notification_service.aggregation.stores.sums import Sums

ONE, TWO = Partition("C", 0), Partition("C", 1)
LOST = TransportRefused("C-0", "its values are lost. Restore them")


class Partitions:
    """A store without commands, of which some partitions cannot be taken over. `tries` are the takeovers so far."""

    notes = ()
    shares_values = False

    def __init__(self) -> None:
        self.errors: dict[Partition, Exception] = {}
        self.tries: list[Partition] = []
        self.opened = 0

    def assignment(self) -> list[Partition]:
        return [ONE, TWO]

    def take_over(self, partition: Partition) -> int:
        self.tries.append(partition)
        if partition in self.errors:
            raise self.errors[partition]
        return 0

    def poll(self, most: int, timeout_ms: int) -> Polled:
        return Polled((), {}, {}, {})

    def let_go(self, partition: Partition) -> None: ...

    def commit(self, steps: Mapping[Partition, Step]) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def store() -> Partitions:
    return Partitions()


@contextmanager
def running(store: Partitions) -> Iterator[StoreRunner]:
    def opened() -> Partitions:
        store.opened += 1
        return store

    runner = StoreRunner("sums", Sums(), opened, steady(Clock()), lambda _: None)  # type: ignore[arg-type]
    yield runner
    runner.close()


def test_a_refused_partition_is_told_once_and_left_alone_for_a_while(
    store: Partitions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_000.0
    monkeypatch.setattr("notification_service.aggregation.runner.monotonic", lambda: now)
    store.errors = {ONE: LOST}
    with running(store) as runner:
        for _ in range(5):
            runner.turn()
        assert store.tries == [ONE, TWO]
        assert list(runner.report().behind) == [TWO]
        assert (runner.report().problem, runner.report().untaken) == (None, 1)
        assert runner.report().notes == (f"C-0 is not taken over yet: {LOST}",)
        now += 11
        runner.turn()
        assert store.tries == [ONE, TWO, ONE]
        (message,) = (each.getMessage() for each in caplog.records)
        assert message == f"store sums cannot take over C-0 yet, the others continue: {LOST}"
        store.errors = {}
        now += 11
        runner.turn()
        assert (set(runner.report().behind), runner.report().untaken) == ({ONE, TWO}, 0)


def test_a_store_whose_partitions_are_all_refused_stands_still_is_opened_anew_and_says_so_once(
    store: Partitions, caplog: pytest.LogCaptureFixture
) -> None:
    store.errors = {ONE: LOST, TWO: LOST}
    with running(store) as runner:
        for _ in range(5):
            runner.turn()
        assert runner.report().problem == str(LOST)
        assert (len(store.tries), store.opened) == (10, 5)
        assert [each.getMessage() for each in caplog.records] == [f"store sums stands still: {LOST}"]
        store.errors = {}
        runner.turn()
        assert (runner.report().problem, runner.report().untaken) == (None, 0)


def test_one_that_does_not_answer_keeps_no_other_one_waiting(store: Partitions) -> None:
    store.errors = {ONE: TransportUnavailable("no answer")}
    with running(store) as runner:
        runner.turn()
        runner.turn()
        assert list(runner.report().behind) == [TWO]
        assert runner.report().untaken == 1
        runner.turn()
        assert store.tries == [ONE, TWO, ONE, ONE]


def test_what_was_there_is_pending_since_it_was_seen_until_all_of_it_is_applied(store: Partitions) -> None:
    """Whatever comes meanwhile: a store that keeps up with a steady stream has not applied the last command, as a rule."""
    with running(store) as runner:
        assert runner.report().pending_since == 1_000

        def reach(at: int, read_to: int, end: int) -> int:
            runner._read_to = {ONE: read_to, TWO: read_to}
            runner._note_reach(Polled((), {}, {}, {ONE: end, TWO: end, Partition("C", 2): 7}), at)
            return runner.report().pending_since

        assert reach(2_000, 10, 20) == 1_000
        assert [reach(3_000, 20, 40), reach(4_000, 39, 60), reach(5_000, 40, 60)] == [3_000, 3_000, 5_000]
        store.errors = {TWO: LOST}
        runner._read_to = {}
        runner.turn()
        assert reach(9_000, 60, 60) == 5_000
