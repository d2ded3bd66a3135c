"""`verify` on a service that takes orders: an order explains what it did, and all else stays a deviation."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.line_format import Line, encode_line
from notification_service.simulator.generate.plan import Numbering
from notification_service.simulator.verify.following import Compared, FollowedOrders, Following
from notification_service.simulator.verify.operator_orders import OrdersLog
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation, Verdict, render_text
from notification_service.simulator.verify.verification import verify
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, Stage, encode_outcome
from resequencer.record import Partition

SEQUENCE = Rules("SEQUENCE")
P0 = Partition("IPF_PROCESSING_DATA", 0)
NOW = 1_774_740_000_000
HOUR = 3_600_000


def order(kind: OrderKind, unit: str, **fields: Any) -> Order:
    needed = {"waits_for": "sequence:1", "since": NOW, "for_ms": HOUR, "until": NOW, "position": 77}
    return Order(
        **({"id": f"{kind}-{unit}", "kind": kind, "by": "anna", "because": "a test", "at": NOW, "unit": unit} | needed | fields)
    )


def ordered_dead_letter(partition: int, offset: int) -> bytes:
    position = f"IPF_PROCESSING_DATA-{partition}@{offset}".encode()
    headers = (("dead-letter-reason", b"ordered"), ("dead-letter-source-position", position))
    return encode_line(Line(b"{}", b"u", headers))[:-1]


def found(verdict: Verdict) -> dict[Deviation, int]:
    return {deviation: count for deviation, count in verdict.counts if count}


class OrderedOutput:
    """A faultless output of a service that takes orders, with orders and outcomes that a test plants."""

    def __init__(self, directory: Path, run: Any, output: Any) -> None:
        self.run = run
        self.notifications: list[bytes] = list(output.notifications)
        self.dead_letters: list[bytes] = list(output.dead_letters)
        self.outcomes: list[bytes] = []
        self.book = OrderFiles(directory / "orders", directory / "out", SystemFiles())
        self.directory = directory
        self.read_at = NOW

    def give(self, given: Order) -> int:
        return self.book.append(P0, given)

    def answer(self, given: Order | None, offset: int, result: OrderResult = OrderResult.DONE, *marks: str) -> None:
        outcome = OrderOutcome(order=given, order_offset=offset, result=result, text="", at=NOW)
        headers = (("order-partition", str(P0).encode()), *((name, b"true") for name in marks))
        number = f"{P0}#{len(self.outcomes) + 1}"
        self.outcomes.append(encode_line(Line(encode_outcome(outcome), None, headers), number=number)[:-1])

    def execute(self, given: Order) -> None:
        self.answer(given, self.give(given))

    def mark(self, unit: str, **headers: str) -> None:
        """Give the unit's last notification these headers."""
        at = max(at for at, each in enumerate(self.notifications) if msgspec.json.decode(each)["key"] == unit)
        read = msgspec.json.decode(self.notifications[at])
        read["headers"] |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.notifications[at] = msgspec.json.encode(read)

    def read_log(self) -> OrdersLog:
        return read_log(self.book, self.read_at)

    def verdict(self) -> Verdict:
        (self.directory / "out").mkdir(exist_ok=True)
        (self.directory / "out" / "orders.jsonl").write_bytes(b"".join(each + b"\n" for each in self.outcomes))
        return verify(SEQUENCE, self.run.expected_lines, self.notifications, self.dead_letters, self.outcomes, self.read_log)

    def found(self) -> dict[Deviation, int]:
        return found(self.verdict())

    @property
    def unit(self) -> str:
        """The unit of the last notification."""
        return str(msgspec.json.decode(self.notifications[-1])["key"])


def read_log(book: OrderFiles, now: int) -> OrdersLog:
    return OrdersLog(book.orders([P0], 0), {}, [(P0, each) for each in book.find_without_outcome(P0)], now)


@pytest.fixture
def ordered(tmp_path: Path, known_run: Callable, faultless: Callable) -> OrderedOutput:
    run = known_run(losses=0, late=0, garbage=0, duplicates=0)
    return OrderedOutput(tmp_path, run, faultless(run, SEQUENCE))


def test_a_service_without_orders_has_no_counts_of_them(ordered: OrderedOutput) -> None:
    verdict = verify(SEQUENCE, ordered.run.expected_lines, ordered.notifications, ordered.dead_letters)
    assert verdict.is_good
    assert verdict.orders is None


def test_an_order_that_was_done_explains_what_it_released(ordered: OrderedOutput) -> None:
    ordered.mark(ordered.unit, incomplete="sequence:1", released_by="operator")
    ordered.execute(order(OrderKind.RELEASE, ordered.unit))
    verdict = ordered.verdict()
    assert verdict.is_good
    assert "1 order: 1 done, 0 refused, 0 lost by the storage, 0 without an outcome, 0 with two." in render_text(verdict)


@pytest.mark.parametrize("result", [None, OrderResult.REFUSED_CHANGED])
def test_a_release_without_an_order_that_was_done_is_found(ordered: OrderedOutput, result: OrderResult | None) -> None:
    ordered.mark(ordered.unit, incomplete="sequence:1", released_by="operator")
    if result is not None:
        given = order(OrderKind.RELEASE, ordered.unit)
        ordered.answer(given, ordered.give(given), result)
    assert ordered.found() == {Deviation.RELEASED_WITHOUT_ORDER: 1, Deviation.FALSELY_MARKED: 1}


def test_an_order_of_another_unit_explains_nothing(ordered: OrderedOutput) -> None:
    ordered.mark(ordered.unit, incomplete="sequence:1", released_by="operator")
    ordered.execute(order(OrderKind.SKIP, "another"))
    assert ordered.found() == {Deviation.RELEASED_WITHOUT_ORDER: 1, Deviation.FALSELY_MARKED: 1}


def test_a_dead_letter_order_explains_its_dead_letter_and_what_is_not_notified_of(ordered: OrderedOutput) -> None:
    ordered.execute(order(OrderKind.DEAD_LETTER, ordered.unit))
    ordered.notifications.pop()
    ordered.dead_letters.append(ordered_dead_letter(0, 77))
    assert ordered.found() == {}


def test_an_ordered_dead_letter_without_an_order_is_found(ordered: OrderedOutput) -> None:
    ordered.dead_letters.append(ordered_dead_letter(0, 77))
    assert ordered.found() == {Deviation.DEAD_LETTER_WITHOUT_ORDER: 1}


def test_an_ordered_dead_letter_that_is_missing_or_doubled_is_found(ordered: OrderedOutput) -> None:
    ordered.execute(order(OrderKind.DEAD_LETTER, ordered.unit))
    assert ordered.found() == {Deviation.DEAD_LETTER_MISSING: 1}
    ordered.dead_letters += [ordered_dead_letter(0, 77)] * 2
    assert ordered.found() == {Deviation.DEAD_LETTER_DOUBLED: 1}


def test_an_order_without_an_outcome_is_found(ordered: OrderedOutput) -> None:
    ordered.give(order(OrderKind.RELEASE, "u", despite_backlog=True))
    ordered.give(order(OrderKind.SKIP, "u", stage=Stage.PROPOSED))
    verdict = ordered.verdict()
    assert found(verdict) == {Deviation.ORDER_WITHOUT_OUTCOME: 1}
    assert verdict.orders is not None
    assert (verdict.orders.given, verdict.orders.without_outcome) == (1, 1)


def test_a_hold_has_no_outcome_before_its_time_is_over(ordered: OrderedOutput) -> None:
    ordered.give(order(OrderKind.HOLD, "u", for_ms=HOUR, waits_for=None, since=None, until=None, position=None))
    assert ordered.found() == {}
    ordered.read_at = NOW + 2 * HOUR
    assert ordered.found() == {Deviation.ORDER_WITHOUT_OUTCOME: 1}


@pytest.mark.parametrize(("approved_by", "longest_ms"), [(None, 600_000), ("ben", 600_000 + 24 * HOUR)])
def test_a_release_may_wait_for_unread_records(ordered: OrderedOutput, approved_by: str | None, longest_ms: int) -> None:
    ordered.give(order(OrderKind.RELEASE, "u", approved_by=approved_by))
    ordered.read_at = NOW + longest_ms
    assert ordered.found() == {}
    ordered.read_at += 2 * 60_000
    assert ordered.found() == {Deviation.ORDER_WITHOUT_OUTCOME: 1}


def test_two_outcomes_of_an_order_are_found_unless_one_is_marked(ordered: OrderedOutput) -> None:
    given = order(OrderKind.RELEASE, "u")
    at = ordered.give(given)
    ordered.answer(given, at)
    ordered.answer(given, at, OrderResult.LOST_BY_HEAL, "possible-duplicate")
    assert ordered.found() == {}
    ordered.answer(given, at)
    assert ordered.found() == {Deviation.ORDER_WITH_TWO_OUTCOMES: 1}


def test_an_order_that_was_executed_twice_is_found(ordered: OrderedOutput) -> None:
    given = order(OrderKind.RELEASE, "u")
    ordered.execute(given)
    again = ordered.give(given)
    ordered.answer(given, again, OrderResult.REFUSED_CHANGED)
    assert ordered.found() == {}
    ordered.outcomes.pop()
    ordered.answer(given, again)
    assert ordered.found() == {Deviation.ORDER_EXECUTED_TWICE: 1}


def test_an_outcome_without_an_order_is_found(ordered: OrderedOutput) -> None:
    ordered.answer(order(OrderKind.RELEASE, "u"), 5)
    assert ordered.found() == {Deviation.OUTCOME_WITHOUT_ORDER: 1}


def test_a_record_that_is_no_order_has_an_outcome_too(ordered: OrderedOutput) -> None:
    ordered.execute(order(OrderKind.RETRY, "u"))
    path = ordered.directory / "orders" / "partition-0.jsonl"
    end = path.stat().st_size
    path.write_bytes(path.read_bytes() + b'{"value": "no order"}\n')
    assert ordered.found() == {Deviation.ORDER_WITHOUT_OUTCOME: 1}
    ordered.answer(None, end, OrderResult.REFUSED_UNREADABLE)
    verdict = ordered.verdict()
    assert verdict.is_good
    assert verdict.orders is not None
    assert (verdict.orders.given, verdict.orders.done, verdict.orders.refused) == (2, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001"])
def test_the_orders_of_a_real_service_explain_what_they_do(tmp_path: Path, operated: Callable, strategy: str) -> None:
    numbering = Numbering.SEPARATE if strategy == "STRICT_SEQUENCE" else Numbering.SHARED
    service = operated(tmp_path, strategy)
    service.simulate(units=100, partitions=1, losses=0.02, late=0.02, duplicates=0.05, numbering=numbering, rate=50)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert verdict.orders is not None
    assert verdict.orders.done > 10
    assert verdict.orders.given == verdict.orders.done + verdict.orders.refused
    assert b"released-by" in service.notifications.read_bytes()


@pytest.mark.slow
def test_a_service_that_takes_orders_is_followed(tmp_path: Path, operated: Callable) -> None:
    service = operated(tmp_path, "SEQUENCE")
    files = Compared(service.expected, service.notifications, service.dead_letters)
    service.simulate(units=60, partitions=1, losses=0.02, rate=50)
    with closing(Following(SEQUENCE, files, orders=FollowedOrders(service.outcomes, service.read_log))) as following:
        look = following.look()
        while look.is_behind:
            look = following.look()
        assert look.is_complete, look
        assert following.verdict() == service.verdict()
        service.service.book.append(P0, order(OrderKind.RETRY, "u", at=service.now()))
        look = following.look()
        assert (look.is_complete, look.outstanding_orders) == (False, 1)
        following.give_up()
        assert found(following.verdict()) == {Deviation.ORDER_WITHOUT_OUTCOME: 1}


def test_a_look_waits_for_the_order_that_explains_a_release(ordered: OrderedOutput) -> None:
    """The outcome may be read after the notification that it explains."""
    ordered.mark(ordered.unit, incomplete="sequence:1", released_by="operator")
    out = ordered.directory / "out"
    out.mkdir()
    files = Compared(ordered.directory / "expected.jsonl", out / "notifications.jsonl", out / "dead-letters.jsonl")
    lines = ordered.run.expected_lines, ordered.notifications, ordered.dead_letters
    for path, written in zip(files, lines, strict=True):
        path.write_bytes(b"".join(each + b"\n" for each in written))
    with closing(Following(SEQUENCE, files, orders=FollowedOrders(out / "orders.jsonl", ordered.read_log))) as following:
        look = following.look()
        assert (look.is_complete, look.outstanding, look.deviations) == (False, 1, 0)
        ordered.execute(order(OrderKind.SKIP, ordered.unit))
        (out / "orders.jsonl").write_bytes(ordered.outcomes[0] + b"\n")
        assert following.look().is_behind
        assert following.look().is_complete
        assert following.verdict().is_good
