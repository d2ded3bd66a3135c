"""Orders for a receiver as a whole: what its workers make of them, and the outcomes that they get."""

from typing import Any

import pytest
from harness.receivers import receiver

from guardian.headers import Way
from guardian.ports import OrderRecord
from guardian.positions import DoneOffsets
from notification_service.delivery.core.answers import Suspended
from notification_service.delivery.core.jobs import Pause
from notification_service.delivery.direct.core.decision import OpenRecord
from notification_service.delivery.direct.core.partition import (
    DirectOrder,
    DirectOrderKind,
    DirectOutcome,
    DirectPartition,
    DirectResult,
    decode,
    encode,
)
from notification_service.delivery.direct.core.position_metadata import PositionMetadata
from notification_service.delivery.direct.core.receiver_orders import ReceiverOrders, find_retention_note, places_of
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.order_executor import OrderExecutor
from notification_service.delivery.errors import OrderRefused
from resequencer.record import Origin, Partition, Record

AT = "2026-03-28T18:00:00Z"
P = Partition("T", 0)
DAY_MS = 86_400_000


def given(kind: DirectOrderKind, by: str = "ann", offset: int | None = None) -> bytes:
    return encode(DirectOrder(id="1", order=kind, by=by, because="repair", at=AT, offset=offset))


def records(*values: bytes, first: int = 0) -> list[OrderRecord]:
    return [OrderRecord(first + number, each) for number, each in enumerate(values)]


PAUSE, RESUME, RETRY = given(DirectOrderKind.PAUSE), given(DirectOrderKind.RESUME), given(DirectOrderKind.RETRY_NOW)


def test_the_last_order_says_whether_the_receiver_is_paused() -> None:
    orders = ReceiverOrders()
    assert (orders.is_known, orders.pause) == (False, None)
    others = (
        b"nonsense",
        given(DirectOrderKind.SKIP_ALL),
        encode(DirectOutcome(id="1", result=DirectResult.DONE, text="", at=AT)),
    )
    orders.read(records(PAUSE, RESUME, given(DirectOrderKind.PAUSE, "bob"), *others), 9)
    assert (orders.is_known, orders.read_to, orders.pause) == (True, 9, Pause(AT, "bob", "repair"))
    orders.read([], 9)
    assert orders.pause is not None
    orders.read(records(RESUME, first=9), 10)
    assert orders.pause is None


def test_a_gate_is_tried_at_once_by_an_order_that_comes_and_not_by_those_of_before() -> None:
    orders = ReceiverOrders()
    assert not orders.read(records(RETRY), 1)
    assert orders.read(records(RETRY, first=1), 2)
    assert not orders.read(records(given(DirectOrderKind.RETRY_NOW, offset=3), first=2), 3), "it is for a record"


def test_a_log_that_ends_earlier_than_before_is_read_again_and_the_pause_holds_meanwhile() -> None:
    orders = ReceiverOrders()
    orders.read(records(RESUME, PAUSE), 2)
    orders.read([], 1)
    assert (orders.read_to, orders.pause is not None) == (0, True)
    orders.read(records(RESUME), 1)
    assert (orders.read_to, orders.pause) == (1, None)


def test_the_end_of_a_record_is_near_when_a_quarter_of_its_time_remains() -> None:
    def note(age_ms: int, retention_ms: int | None = 8 * DAY_MS) -> str | None:
        return find_retention_note(P, 1_000, retention_ms, 1_000 + age_ms)

    assert [note(6 * DAY_MS - 1), note(9 * DAY_MS, None), find_retention_note(P, None, 1, 5)] == [None] * 3
    kept = "T-0 keeps its records for 8 d 0 h: the oldest that is not delivered may be deleted"
    assert note(7 * DAY_MS) == f"{kept} in 1 d 0 h"
    assert note(8 * DAY_MS) == f"{kept} from now on"


def test_a_topic_stands_for_the_partitions_that_it_has() -> None:
    found = [Partition("T-1", number) for number in range(3)]
    assert places_of("T-1", found) == found
    assert places_of("T-1-2", found) == [Partition("T-1", 2)]
    assert places_of("T-1", [P]) == [Partition("T", 1)], "the owner says whether there is one"
    with pytest.raises(OrderRefused, match="U is no partition, such as NOTIFICATIONS-0"):
        places_of("U", found)


class Stage:
    """A partition whose record 0 is blocked, behind a gate."""

    def __init__(self, number: int = 0) -> None:
        self.gate = SharedGate(receiver())
        place = Partition("T", number)
        self.state = DirectPartition(place, 0, PositionMetadata(DoneOffsets(0)), 1 << 20)
        origin = Origin(place, 0)
        self.record = OpenRecord(Record(origin, b"{}", b"k"), Way(origin), "k", b"k", "n", 1, 0)
        self.state.read([self.record], 1)
        self.state.take_due(0, 1)
        self.executor = OrderExecutor(self.state, self.gate, self._no_dead_letter, self, 0)
        self.read = 0

    def now(self) -> int:
        return 1_774_740_835_941

    def block(self) -> None:
        self.record.error = "HTTP 500"
        self.state.again(self.record, 3_600_000)

    def order(self, order: bytes) -> Any:
        """Return the outcome, None if there is none yet."""
        if not self.executor.execute(OrderRecord(self.read, order), 100_000):
            return None
        self.read += 1
        outcome = decode(self.state.output().records[-1].value or b"")
        assert isinstance(outcome, DirectOutcome)
        return outcome

    def _no_dead_letter(self, *_: Any) -> Any:
        raise AssertionError("nothing becomes a dead letter")


def test_an_order_for_the_receiver_has_one_outcome_by_the_owner_of_its_first_partition() -> None:
    assert "within seconds no worker begins a call" in Stage().order(PAUSE).text
    assert Stage().order(RESUME).result is DirectResult.DONE
    assert "each worker whose gate is shut" in Stage().order(RETRY).text
    refused = Stage(1).order(PAUSE)
    assert (refused.result, refused.text) == (DirectResult.REFUSED, "pause is for the whole receiver: partition 0 takes it")


def test_a_blocked_record_is_called_next_and_through_a_shut_gate() -> None:
    stage, order = Stage(), given(DirectOrderKind.RETRY_NOW, offset=0)
    stage.block()
    stage.gate.end(0, stage.record, Suspended("HTTP 503"))
    assert stage.gate.permits(100_000, 1) == 1, "a minute has passed"
    stage.gate.begin(100_000, 7)
    stage.gate.end(100_000, OpenRecord(stage.record.record, stage.record.way, "o", b"o", "o", 7, 0), Suspended("HTTP 503"))
    assert stage.gate.permits(100_000, 1) == 0
    assert stage.order(order).text == "T-0@0 is called next"
    assert stage.gate.permits(100_000, 1) == 1
    assert stage.state.take_due(100_000, 9) == [stage.record]
    assert stage.order(order).text == "T-0@0 is called at this moment"


def test_what_is_not_blocked_or_is_paused_is_not_called_and_says_why() -> None:
    stage = Stage()
    assert "T-0@0 is not blocked" in stage.order(given(DirectOrderKind.RETRY_NOW, offset=0)).text
    assert "T-0@1 was not read yet" in stage.order(given(DirectOrderKind.RETRY_NOW, offset=1)).text
    stage.block()
    stage.gate.follow(Pause(AT, "ann", "repair"))
    refused = stage.order(given(DirectOrderKind.RETRY_NOW, offset=0))
    assert (refused.result, "by ann: repair; resume it first" in refused.text) == (DirectResult.REFUSED, True)


def test_no_call_begins_before_it_is_known_whether_the_receiver_is_paused() -> None:
    gate = SharedGate(receiver())
    gate.is_known = False
    assert (gate.permits(0, 5), gate.sleeps) == (0, True)
    gate.follow(Pause(AT, "ann", "repair"))
    assert (gate.permits(0, 5), gate.sleeps, gate.retries_at(0) > 1_000) == (0, True, True)
    gate.follow(None)
    assert (gate.permits(0, 5), gate.sleeps) == (5, False)
