"""Orders for a receiver: it is paused and resumed, and what waits is called now, once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from harness.ledger_stage import LedgerStage, item

from notification_service.delivery.core.answers import Again, Done, Failed, Suspended
from notification_service.delivery.core.jobs import ErrorFilter, Pause, RetryMode
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger import job_orders
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Step
from resequencer.clock import instant_text

Make = Callable[..., LedgerStage]
BACK_OFF = Again(RetryMode.BACK_OFF, 3_600_000, "HTTP 500")


def test_no_worker_claims_for_a_paused_receiver_and_what_is_under_way_ends(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2), item("b", 1))
    (under_way,) = it.claim(wanted=1)
    it.ledger.pause("r", "ann", " it is repaired ")
    others = [it.another() for _ in range(2)]
    assert [each.claim("r", Step.DELIVER, "w", 5).claims for each in (it.ledger, *others)] == [[], [], []]
    assert it.finish([under_way]).taken == 1
    assert it.claim() == []
    (gate,) = others[0].gates()
    assert (gate.pause, gate.waiting, gate.is_open) == (Pause(instant_text(it.now), "ann", "it is repaired"), 2, True)
    assert it.take(item("c", 1), job="k") == 1, "its sources are read meanwhile"
    others[1].resume("r")
    assert sorted(it.deliver_all()) == ["a-2", "b-1", "c-1"]


def test_a_pause_outlives_outcomes_probes_and_an_opened_gate(stage: Make) -> None:
    it = stage("suspension { probe = 1s, most = 1s }")
    it.take(item("a", 1), item("b", 1))
    first, second = it.claim()
    it.ledger.pause("r", "ann", "x")
    it.finish([first], Suspended("HTTP 503"))
    it.finish([second], Done())
    it.now += 60_000
    assert it.claim() == [], "no probe"
    it.ledger.open_gate("r")
    assert it.claim() == []
    (gate,) = it.ledger.gates()
    assert (gate.is_open, gate.pause is not None) == (True, True)
    it.ledger.resume("r")
    assert it.deliver_all() == ["a-1"]


def test_a_receiver_is_paused_and_resumed_once_and_with_a_reason(stage: Make) -> None:
    it = stage()
    with pytest.raises(JobRefused, match="give a reason"):
        it.ledger.pause("r", "ann", " ")
    with pytest.raises(JobRefused, match="r is not paused"):
        it.ledger.resume("r")
    it.ledger.pause("r", "ann", "repair")
    with pytest.raises(JobRefused, match=r"r is paused since .* by ann: repair"):
        it.ledger.pause("r", "bob", "again")
    with pytest.raises(JobRefused, match=r"by ann: repair; resume it first"):
        it.ledger.retry_now("r", None)


def test_a_shut_gate_tries_now_with_one_row(stage: Make) -> None:
    it = stage("suspension { probe = 1h, most = 2h }")
    it.take(item("a", 1), item("b", 1))
    it.finish(it.claim(), Suspended("HTTP 503"))
    assert it.claim() == []
    it.now += 1_000
    row = it.ledger.retry_now("r", None)
    (probe,) = it.claim()
    assert (probe.row, it.claim()) == (row, [])
    for each in (None, row):
        with pytest.raises(JobRefused, match="a call that tries r is under way"):
            it.ledger.retry_now("r", each)
    it.finish([probe], Suspended("HTTP 503"))
    (gate,) = it.ledger.gates()
    assert gate.probe_at == it.now + 2 * 3_600_000
    it.ledger.retry_now("r", None)
    it.finish(it.claim())
    assert it.ledger.gates()[0].is_open


def test_a_row_is_called_now_and_the_others_wait(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 1), item("c", 1))
    claims = it.claim()
    it.finish(claims, BACK_OFF)
    assert it.claim() == []
    assert it.ledger.retry_now("r", claims[1].row) == claims[1].row
    assert it.deliver_all() == ["b-1"]


def test_the_named_row_is_the_probe_of_a_shut_gate(stage: Make) -> None:
    it = stage("suspension { probe = 1h, most = 2h }")
    it.take(item("a", 1), item("b", 1), item("c", 1))
    claims = it.claim()
    it.finish(claims, Suspended("HTTP 503"))
    it.ledger.retry_now("r", claims[2].row)
    (probe,) = it.claim()
    assert probe.row == claims[2].row


def test_a_row_that_cannot_be_called_now_says_why(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("a", 2), item("b", 1), item("c", 1))
    first, second, third = it.claim()
    it.finish([second], Failed("HTTP 400"))
    it.finish([third])
    refused = [
        (99, "there is no row 99 for r"),
        (1 << 70, f"there is no row {1 << 70} for r"),
        (second.row, f"row {second.row} has failed; `resequencer delivery retry-failed j` delivers"),
        (third.row, f"row {third.row} has ended: processed"),
        (first.row, f"row {first.row} is called at this moment"),
        (first.row + 1, f"row {first.row + 1} waits behind an earlier one of unit a"),
        (None, "the gate of r is open; name the row"),
    ]
    for row, text in refused:
        with pytest.raises(JobRefused, match=text):
            it.ledger.retry_now("r", row)
    it.finish([first], Suspended("HTTP 503"))
    it.now += 3_600_000
    it.deliver_all()
    it.take(item("d", 1), job="k")
    it.finish(it.claim(), Suspended("HTTP 503"))
    it.ledger.cancel_job("k")
    with pytest.raises(JobRefused, match="nothing waits for r"):
        it.ledger.retry_now("r", None)


def test_a_row_that_several_people_order_while_workers_claim_is_called_once(stage: Make) -> None:
    it = stage("concurrency = 50")
    it.take(*(item(f"k{number}", 1) for number in range(8)))
    claims = it.claim()
    it.finish(claims[:4], BACK_OFF)
    it.finish(claims[4:], BACK_OFF)
    it.ledger.open_gate("r")
    rows, workers = [each.row for each in claims], [it.another() for _ in range(4)]

    def order(ledger: Ledger) -> list[int]:
        taken = []
        for row in rows:
            with suppress(JobRefused):  # It is called at this moment.
                ledger.retry_now("r", row)
            taken += [each.row for each in ledger.claim("r", Step.DELIVER, "w", 50).claims]
        return taken

    with ThreadPoolExecutor(4) as threads:
        called = [row for found in threads.map(order, workers) for row in found]
    assert sorted(called) == rows


def failed(it: LedgerStage) -> None:
    """Seven rows fail, with successes in between, so that the gate stays open."""
    keys = [each for number in range(6) for each in (f"k{number}", f"ok{number}")]
    it.take(*(item(each, 1) for each in keys), item("late", 1), item("late", 2))
    for each in it.claim():
        it.now += 1_000
        text = "HTTP 400: 50% off_" if each.key in ("k0", "k3", "late") else "HTTP 418"
        it.finish([each], Done() if each.key.startswith("ok") else Failed(text))
    it.deliver_all()


def test_failed_rows_are_counted_and_delivered_again_by_their_error(stage: Make) -> None:
    it = stage()
    failed(it)
    only = ErrorFilter("50% OFF_")
    assert [it.ledger.count_failed("j", only, with_late=late) for late in (False, True)] == [2, 3]
    assert len(it.ledger.errors("j", 10, only)) == 3
    assert it.ledger.count_failed("j", ErrorFilter("50x"), with_late=True) == 0
    assert it.ledger.retry_chosen("j", only, with_late=False) == 2
    assert (it.job().completed_at, it.ledger.retry_chosen("j", only, with_late=False)) == (None, 0)
    assert it.deliver_all() == ["k0-1", "k3-1"]
    assert (it.job().completed_at, len(it.ledger.events.after(0, 10))) == (it.now, 2)
    assert it.ledger.retry_chosen("j", only, with_late=True) == 1
    assert it.deliver_all() == ["late-1"]


def test_failed_rows_are_chosen_by_the_time_of_their_failure(stage: Make) -> None:
    it = stage()
    failed(it)
    first_at = it.ledger.errors("j", 1)[0].at
    assert it.ledger.count_failed("j", ErrorFilter("", first_at + 6_000), with_late=True) == 4


def test_so_many_failed_rows_are_delivered_again_at_once(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = stage()
    failed(it)
    monkeypatch.setattr(job_orders, "MAX_RETRIED", 2)
    assert it.ledger.count_failed("j", ErrorFilter("HTTP"), with_late=False) == 3, "and more"
    assert [it.ledger.retry_chosen("j", ErrorFilter("HTTP"), with_late=False) for _ in range(4)] == [2, 2, 2, 0]


def test_failed_rows_of_a_cancelled_job_stay_failed(stage: Make) -> None:
    it = stage()
    it.take(item("a", 1), item("b", 1))
    it.finish(it.claim(wanted=1), Failed("HTTP 400"))
    it.ledger.cancel_job("j")
    with pytest.raises(JobRefused, match="j was cancelled"):
        it.ledger.retry_chosen("j", ErrorFilter("HTTP"), with_late=False)
