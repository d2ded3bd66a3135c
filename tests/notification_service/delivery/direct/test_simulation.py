"""Direct delivery in simulated time: whatever dies, nothing is lost, overtaken, or called when it is known as done."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from harness.nightly import Search
from harness.receivers import receiver

from guardian.ports import OutputRecord
from guardian.positions import DoneOffsets
from notification_service.delivery.direct.consumer import StageConsumer
from notification_service.delivery.direct.core.decision import OpenRecord
from notification_service.delivery.direct.core.partition import Departures, DirectPartition
from notification_service.delivery.direct.core.position_metadata import PositionMetadata
from tests.notification_service.delivery.direct.simulated import Run, simulate
from tests.notification_service.delivery.direct.simulated_loop import Broken

pytestmark = pytest.mark.slow
QUICK = ("concurrency = 6", "timeout = 2s", "suspension { probe = 100ms, most = 1s }")
RETRY = "retry { first = 200ms, factor = 2, most = 2s, attempts = 3 }"
POLICIES = {
    "blocking": ("policy = blocking", RETRY, *QUICK),
    "retry-topics": ("policy = retry-topics", "retry-topics.intervals = [1s, 4s]", *QUICK),
    "blocking-then-retry-topics": ("policy = blocking-then-retry-topics", RETRY, "retry-topics.intervals = [1s, 4s]", *QUICK),
}


def lived(monkeypatch: pytest.MonkeyPatch, policy: str, seed: int) -> Run:
    return simulate(monkeypatch, receiver(*POLICIES[policy], is_kafka=True), seed)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_promised_holds(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    lived(monkeypatch, policy, 0)


@pytest.mark.parametrize("seed", [33, 1795901822])
def test_a_worker_that_has_only_retry_topics_left_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Its gate was shut by records of a topic that is another worker's by then, or by a receiver that slept; all it has fails."""
    lived(monkeypatch, "blocking-then-retry-topics", seed)


@pytest.mark.nightly("delivery", minutes=2)
@pytest.mark.parametrize("policy", POLICIES)
def test_whatever_the_seed_what_is_promised_holds(search: Search, policy: str) -> None:
    for seed in search.seeds():
        with pytest.MonkeyPatch.context() as patch:
            lived(patch, policy, seed)


def _call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is cut off, or whose commits fail, calls on."""
    monkeypatch.setattr(StageConsumer, "_may_call", lambda self: not self._is_stopping)


def _forget_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions do not list what is done beyond them."""
    encode = PositionMetadata.encode

    def without(self: PositionMetadata, position: int) -> str:
        undone = (range(position, self.done.end),) if self.done.end > position else ()
        return encode(msgspec.structs.replace(self, done=DoneOffsets(self.done.end, undone)), position)

    monkeypatch.setattr(PositionMetadata, "encode", without)


def _go_on_before_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next record of a key is called when the dead letter of its head is made, and not when it is committed."""
    end = DirectPartition.end

    def early(self: DirectPartition, record: OpenRecord, leaving: OutputRecord | None = None) -> None:
        end(self, record, leaving)
        if leaving is not None:
            self._lanes.advance(record.lane)

    monkeypatch.setattr(DirectPartition, "end", early)
    monkeypatch.setattr(DirectPartition, "published", lambda self, output: self._departures.published(len(output.records)))


def _pass_before_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position passes a record whose dead letter leaves with a later one."""
    end, take = DirectPartition.end, Departures.take

    def settled(self: DirectPartition, record: OpenRecord, leaving: OutputRecord | None = None) -> None:
        end(self, record, leaving)
        if leaving is not None:
            self._positions.settle(record.offset, 0)

    monkeypatch.setattr(DirectPartition, "end", settled)
    monkeypatch.setattr(Departures, "take", lambda self: take(self) if self._taken else take(self)[: self._taken // 2])


def _end_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that is to be tried again is done."""
    monkeypatch.setattr(DirectPartition, "again", lambda self, record, _due_at: self.end(record))


PLANTED = (_call_on, _forget_what_is_done, _go_on_before_it_has_left, _pass_before_it_has_left, _end_what_failed)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__.strip("_"))
def test_the_simulation_notices(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(40):
        try:
            lived(monkeypatch, "blocking", seed)
        except Broken:
            return
    pytest.fail(f"no run noticed: {plant.__doc__}")
