"""The gate of a receiver: when it shuts and opens, and how many calls it permits."""

import msgspec
import pytest
from harness.receivers import receiver

from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.gate import Gate, GateState
from notification_service.delivery.core.jobs import Pause, RetryMode
from notification_service.delivery.settings import Step

R = receiver("suspension { probe = 60s, most = 15m }")
SLEEPS = Suspended("HTTP 503")
BACK_OFF = Again(RetryMode.BACK_OFF, 1_000, "HTTP 500")
HOUR = 3_600_000


def test_a_suspension_of_three_hours_takes_one_probe_per_interval() -> None:
    gate, now, probes = Gate().after(R, 1, 0, SLEEPS, 0), 0, []
    while now < 3 * HOUR:
        if gate.permits(R, now, 0, 50):
            probes.append(now)
            gate = gate.begun(R, now, [2])
            assert gate.permits(R, now + 1, 1, 50) == 0
            gate = gate.after(R, 2, 0, SLEEPS, now + 100)
        now += 1_000
    waits = [(later - earlier) // 60_000 for earlier, later in zip([0, *probes], probes, strict=False)]
    assert waits == [1, 2, 4, 8, *[15] * 10]
    assert gate.probes == 14


def test_a_probe_that_succeeds_opens_it_and_its_pauses_begin_anew() -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 0).begun(R, 60_000, [1]).after(R, 1, 0, SLEEPS, 60_100)
    assert gate.pause_ms == 120_000
    gate = gate.begun(R, 200_000, [1]).after(R, 1, 0, Done(), 200_100)
    assert (gate.state, gate.slept_ms) == (GateState.OPEN, 200_100)
    assert gate.permits(R, 200_200, 0, 50) == 20
    assert gate.after(R, 2, 0, SLEEPS, 300_000).pause_ms == 60_000


@pytest.mark.parametrize("outcome", [Failed("HTTP 503 (after 10 attempts)", RetryMode.BACK_OFF), BACK_OFF, SLEEPS])
def test_any_other_answer_of_a_probe_keeps_it_shut(outcome: Outcome) -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 0).begun(R, 60_000, [1]).after(R, 1, 0, outcome, 60_100)
    assert (gate.state, gate.probe_at) == (GateState.SHUT, 60_100 + 120_000)


@pytest.mark.parametrize(
    "outcome",
    [
        Rejected("no"),
        Limited("slow", 5),
        Again(RetryMode.VERIFICATION, 5, "HTTP 404"),
        Failed("HTTP 404 (not found after 20 questions)", RetryMode.VERIFICATION),
        Again(RetryMode.BACK_OFF, 5, "HTTP 404", announces=True),
        Failed("HTTP 404 (after 10 attempts)", RetryMode.BACK_OFF, is_unknown=True),
    ],
)
def test_what_only_a_receiver_that_is_awake_answers_opens_it(outcome: Outcome) -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 0).begun(R, 60_000, [1]).after(R, 1, 0, outcome, 60_100)
    assert gate.state is GateState.OPEN


def test_after_a_probe_that_came_to_no_end_another_is_the_probe() -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 0).begun(R, 60_000, [1])
    assert gate.permits(R, 90_000, 0, 50) == 0
    assert gate.without_probe().permits(R, 90_000, 0, 50) == 1


def test_late_answers_of_calls_from_before_it_shut_change_nothing() -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 0)
    assert gate.after(R, 9, 0, Done(), 50) == gate
    assert gate.after(R, 9, 0, SLEEPS, 50) == gate


def test_retry_after_prolongs_the_pause() -> None:
    assert Gate().after(R, 1, 0, Suspended("HTTP 503", 600_000), 0).probe_at == 600_000
    assert Gate().after(R, 1, 0, Suspended("HTTP 503", 1_000), 0).probe_at == 60_000


def test_five_rows_running_shut_it_and_one_success_between_them_does_not() -> None:
    gate = Gate()
    for row in range(4):
        gate = gate.after(R, row, 7, BACK_OFF if row % 2 else Failed("HTTP 418"), 0)
    assert gate.state is GateState.OPEN
    assert gate.after(R, 3, 8, BACK_OFF, 0).state is GateState.OPEN  # The same row once more.
    shut = gate.after(R, 4, 7, BACK_OFF, 0)
    assert (shut.state, [each.row for each in shut.suspects], shut.suspects[0].attempts) == (GateState.SHUT, [0, 1, 2, 3, 4], 7)
    after_success = gate.after(R, 9, 0, Done(), 0).after(R, 4, 7, BACK_OFF, 0)
    assert after_success.state is GateState.OPEN


def test_a_row_that_is_in_trouble_again_gets_the_attempts_before_the_first_trouble_back() -> None:
    gate = Gate()
    for row, attempts in ((0, 2), (1, 0), (0, 3), (2, 0), (3, 0), (4, 0)):
        gate = gate.after(R, row, attempts, BACK_OFF, 0)
    assert {each.row: each.attempts for each in gate.suspects}[0] == 2


def test_a_row_that_the_receiver_does_not_understand_keeps_no_gate_shut_that_shut_for_another_reason() -> None:
    unknown = Failed("HTTP 400: no such field")
    gate = Gate().after(R, 1, 0, SLEEPS, 0).begun(R, 60_000, [2]).after(R, 2, 0, unknown, 60_100)
    assert gate.state is GateState.OPEN
    for row in range(3, 7):
        gate = gate.after(R, row, 0, unknown, 61_000)
    assert (gate.state, [each.row for each in gate.suspects]) == (GateState.SHUT, [2, 3, 4, 5, 6])
    gate = gate.begun(R, 200_000, [2]).after(R, 2, 0, Failed("HTTP 400: another field"), 200_100)
    assert gate.state is GateState.SHUT, "it is the reason for which it is shut"


def test_suspensions_are_a_units_own_when_others_succeeded_at_the_step_before_each_of_three_more() -> None:
    gate, refusals, own = Gate(), None, list[bool]()
    for _ in range(5):
        refusals = gate.refused(Step.DELIVER, refusals)
        own.append(refusals.are_its_own)
        gate = gate.after(R, 1, 0, SLEEPS, 0).begun(R, 60_000, [2]).after(R, 2, 0, Done(), 60_100)
    assert own == [False, False, False, True, True]


def test_neither_late_answers_nor_other_steps_nor_limits_say_that_a_suspension_is_a_units_own() -> None:
    gate, refusals = Gate(), None
    for _ in range(9):
        refusals = gate.refused(Step.DELIVER, refusals)
        gate = gate.after(R, 1, 0, SLEEPS, 0).after(R, 3, 0, Done(), 10)
        gate = gate.begun(R, 60_000, [2]).after(R, 2, 0, Done(), 60_100, Step.ANNOUNCE).after(R, 4, 0, Limited("slow", 5), 60_200)
    assert refusals is not None
    assert refusals.between == 0


def test_announcements_that_succeed_hide_no_trouble_of_deliveries() -> None:
    gate = Gate()
    for row in range(5):
        gate = gate.after(R, 100 + row, 0, Done(), 0, Step.ANNOUNCE)
        gate = gate.after(R, row, 0, BACK_OFF, 0, Step.DELIVER)
    assert gate.state is GateState.SHUT


def test_verification_is_no_trouble_of_the_receiver() -> None:
    gate = Gate()
    for row in range(20):
        gate = gate.after(R, row, 0, Again(RetryMode.VERIFICATION, 5, "HTTP 404"), 0)
        gate = gate.after(R, row, 0, Failed("HTTP 404", RetryMode.VERIFICATION), 0)
    assert gate.state is GateState.OPEN


def test_concurrency_halves_where_calls_are_too_many_and_grows_with_each_success() -> None:
    gate = Gate()
    for now, expected in enumerate((10, 5, 2, 1, 1)):
        for row in range(20):  # Of one burst; it counts once.
            gate = gate.after(R, row, 0, Limited("429", 5), now * 1_000 + row)
        assert gate.permits(R, 0, 0, 50) == expected
    for _ in range(400):
        gate = gate.after(R, 1, 0, Done(), 0)
    assert gate.permits(R, 0, 0, 50) == 20
    assert gate.permits(R, 0, 17, 50) == 3


@pytest.mark.parametrize(("rate", "expected"), [("50/s", 500), ("1/s", 10), ("0.5/s", 5)])
def test_a_rate_is_kept_over_ten_seconds_with_one_second_at_once(rate: str, expected: int) -> None:
    limited = receiver(f'rate = "{rate}"', "concurrency = 1000")
    gate, calls = Gate(), 0
    for now in range(1_000_000, 1_010_000, 10):
        permitted = gate.permits(limited, now, 0, 1_000)
        gate = gate.begun(limited, now, list(range(permitted)))
        calls += permitted
    burst = max(1, int(float(rate.split("/")[0])))
    assert expected <= calls <= expected + burst


def test_an_operator_opens_it() -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 1_000).opened(31_000)
    assert (gate.state, gate.slept_ms, gate.reason) == (GateState.OPEN, 30_000, "")


def test_its_state_is_kept_as_json() -> None:
    gate = Gate().after(R, 1, 3, BACK_OFF, 5)
    assert msgspec.json.decode(msgspec.json.encode(gate), type=Gate) == gate


def test_a_clock_that_is_set_back_stops_no_calls() -> None:
    for rate in ("50/s", "0.5/s"):
        limited = receiver(f'rate = "{rate}"')
        gate = Gate().begun(limited, 2 * HOUR, [1])
        assert gate.permits(limited, HOUR, 0, 50) > 0
        assert gate.begun(limited, HOUR, [1]).next_call <= HOUR + 2_000


PAUSE = Pause("2026-03-28T18:00:00Z", "ann", "repair")


@pytest.mark.parametrize("gate", [Gate(), Gate().after(R, 1, 0, SLEEPS, 0)])
def test_a_paused_receiver_gets_no_call_and_no_probe_until_it_is_resumed(gate: Gate) -> None:
    paused = gate.paused(PAUSE)
    assert paused.permits(R, HOUR, 0, 50) == 0
    assert paused.paused(None).permits(R, HOUR, 0, 50) == gate.permits(R, HOUR, 0, 50) > 0


@pytest.mark.parametrize("outcome", [Done(), SLEEPS, BACK_OFF, Limited("slow", 5), Failed("HTTP 418")])
def test_no_outcome_and_no_opening_ends_a_pause(outcome: Outcome) -> None:
    gate = Gate().paused(PAUSE)
    for row in range(6):
        gate = gate.after(R, row, 0, outcome, row)
    assert gate.pause == gate.opened(HOUR).pause == PAUSE


def test_a_probe_may_be_due_earlier_and_its_pauses_stay() -> None:
    gate = Gate().after(R, 1, 0, SLEEPS, 0)
    assert (gate.permits(R, 1, 0, 50), gate.probed_now(1).permits(R, 1, 0, 50)) == (0, 1)
    assert gate.probed_now(HOUR) == gate, "it is due already"
    assert gate.probed_now(1).begun(R, 1, [1]).after(R, 1, 0, SLEEPS, 2).pause_ms == 2 * gate.pause_ms
