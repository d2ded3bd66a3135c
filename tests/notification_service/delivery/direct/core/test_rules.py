"""The stages of a policy, what follows an outcome, and the headers of what is moved."""

import pytest
from harness.receivers import receiver

from guardian.headers import Way, texts_of, way_of
from guardian.ports import Channel
from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.jobs import RetryMode
from notification_service.delivery.direct.core.decision import (
    Dead,
    Decision,
    Ended,
    Moves,
    OpenRecord,
    Waits,
    dead_letter,
    decide,
    find_former_group,
    former_stage,
    moved,
    stages_of,
    topics_to_make,
)
from notification_service.delivery.direct.core.shared_gate import Blame, Doubt, SharedGate
from notification_service.delivery.direct.owned import Reading
from resequencer.clock import SteadyClock
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Origin, Partition, Record

P = Partition("T", 3)
BACK_OFF = RetryMode.BACK_OFF
NOW = 1_774_740_835_941


class FixedClock:
    def now(self) -> int:
        return NOW


@pytest.mark.parametrize(
    ("policy", "attempts", "topics"),
    [
        ("blocking", [4, 4], ["T", "T-g-requeued"]),
        ("retry-topics", [1, 1, 1, 1], ["T", "T-g-retry-1", "T-g-retry-2", "T-g-requeued"]),
        ("blocking-then-retry-topics", [4, 1, 1, 4], ["T", "T-g-retry-1", "T-g-retry-2", "T-g-requeued"]),
    ],
)
def test_the_stages_of_a_policy(policy: str, attempts: list[int], topics: list[str]) -> None:
    *retries, requeued = topics[1:]
    intervals = "retry-topics.intervals = [1m, 1h]" if retries else "concurrency = 1"
    stages = stages_of(receiver(f"policy = {policy}", "retry.attempts = 4", intervals, is_kafka=True), "T", "g")
    assert [each.topic for each in stages] == topics
    nexts = [*retries, None]
    assert [each.next_topic for each in stages] == [*nexts, nexts[0]]
    delays = [60_000, 3_600_000][: len(retries)]
    assert [each.next_delay_ms for each in stages] == [*delays, 0, [*delays, 0][0]]
    assert [each.receiver.retry.attempts for each in stages] == attempts
    assert [each.delay_ms for each in stages] == [0, *delays, 0]
    assert [each.is_source for each in stages] == [each == "T" for each in topics]
    assert [each.group for each in stages] == ["g", *(each.removeprefix("T-") for each in topics[1:])]
    assert topics_to_make(stages).keys() == {*retries, requeued, "T-g-dlq", "T-g-orders"}


@pytest.mark.parametrize("jump_ms", [30 * 86_400_000, -30 * 86_400_000])
def test_a_clock_that_is_wrong_for_one_look_neither_skips_a_delay_nor_draws_it_out(jump_ms: int) -> None:
    passed, wrong = 0, 0
    clock = SteadyClock(lambda: NOW + passed + wrong, lambda: passed)
    clock.now()
    passed = 120_000
    assert clock.is_settled
    stages = stages_of(receiver("policy = retry-topics", "retry-topics.intervals = [1h]", is_kafka=True), "T", "g")
    way = Way(Origin(P, 7), attempts=1)
    wrong = jump_ms
    record = moved(OpenRecord(Record(Origin(P, 7), b"{}", b"k"), way, "k", b"k", "n", 1, 0), 3_600_000, "HTTP 500", clock.now())
    read = Record(Origin(Partition("T-g-retry-1", 3), 0), b"{}", b"k", record.headers)
    assert Reading(stages[1], SharedGate(stages[1].receiver), clock, "log").open(read, 0).due_at == 3_600_000


def test_what_is_requeued_to_a_receiver_without_a_limit_of_attempts_has_one() -> None:
    stages = stages_of(receiver("policy = blocking", "retry.attempts = null", is_kafka=True), "T", "g")
    assert [each.receiver.retry.attempts for each in stages] == [None, 10]


@pytest.mark.parametrize(
    ("outcome", "skips", "is_asleep", "decision"),
    [
        (Done(), False, False, Ended()),
        (Done(), True, True, Ended()),
        (Again(BACK_OFF, 7, "HTTP 500"), False, False, Waits(7, "HTTP 500", counts=True)),
        (Again(BACK_OFF, 7, "HTTP 500"), True, False, Dead(DeadLetterReason.SKIPPED, "HTTP 500")),
        (Again(BACK_OFF, 7, "HTTP 500"), True, True, Waits(0, "HTTP 500", counts=False)),
        (Failed("HTTP 500", BACK_OFF), False, False, Moves("HTTP 500")),
        (Failed("HTTP 500", BACK_OFF), True, False, Dead(DeadLetterReason.SKIPPED, "HTTP 500")),
        (Failed("HTTP 400"), False, False, Dead(DeadLetterReason.UNEXPECTED_ANSWER, "HTTP 400")),
        (Rejected("HTTP 422"), False, False, Dead(DeadLetterReason.REJECTED, "HTTP 422")),
        (Suspended("HTTP 401"), True, False, Waits(0, "HTTP 401", counts=False)),
        (Limited("HTTP 429", 9), True, False, Waits(9, "HTTP 429", counts=False)),
    ],
)
def test_what_follows_an_outcome(outcome: Outcome, skips: bool, is_asleep: bool, decision: Decision) -> None:
    assert decide(outcome, skips=skips, is_asleep=is_asleep) == decision


def open_one(record: Record, number: int = 0) -> OpenRecord:
    stages = stages_of(receiver("policy = retry-topics", "retry-topics.intervals = [1m, 1h]", is_kafka=True), "T", "g")
    reading = Reading(stages[number], SharedGate(stages[number].receiver), FixedClock(), "log")
    found = reading.open(record, 1_000)
    assert found is not None
    return found


def test_a_moved_record_knows_where_it_came_from_and_waits_from_the_instant_at_which_it_was_moved() -> None:
    headers = (("notification-id", b"n"), ("traceparent", b"t"))
    first = open_one(Record(Origin(P, 5), b"v", b"k", headers))
    first.attempts = 1
    output = moved(first, 60_000, "HTTP 500", NOW - 20_000)
    assert (output.channel, output.key, output.value) == (Channel.NOTIFICATIONS, b"k", b"v")
    there = Record(Origin(Partition("T-g-retry-1", 0), 77), output.value, output.key, output.headers)
    assert way_of(there) == Way(Origin(P, 5), 1, NOW - 20_000)
    second = open_one(there, 1)
    assert (second.due_at, second.notification_id) == (1_000 + 40_000, "n")
    second.attempts = 1
    letter = dead_letter(second, DeadLetterReason.ATTEMPTS_EXHAUSTED, "HTTP 500", NOW)
    texts = texts_of(letter.headers)
    assert (texts["dead-letter-source-position"], texts["notification-id"], texts["traceparent"]) == ("T-3@5", "n", "t")
    assert {name for name in texts if name.startswith("delivery-")} == {"delivery-id"}
    again = texts_of(moved(second, 1, "x" * 5_000, NOW).headers)
    assert (again["delivery-attempts"], len(again["delivery-error"])) == ("2", 1_000)


def test_a_record_without_an_id_keeps_the_one_that_was_made_for_it() -> None:
    first = open_one(Record(Origin(P, 5), b"v", b"k"))
    output = moved(first, 60_000, "HTTP 500", NOW)
    second = open_one(Record(Origin(Partition("T-g-retry-1", 0), 77), b"v", b"k", output.headers), 1)
    assert first.notification_id == second.notification_id != open_one(Record(Origin(P, 6), b"v", b"k")).notification_id
    assert open_one(Record(Origin(P, 5), b"v", b"k", (("delivery-id", b"mine"),))).notification_id == "mine"


def test_headers_that_another_program_wrote_are_not_believed() -> None:
    record = Record(Origin(P, 5), b"v", b"k", (("delivery-attempts", b"many"), ("delivery-source-position", b"T-0@1")))
    assert way_of(record) == Way(Origin(P, 5))
    assert open_one(record).way == Way(Origin(P, 5)), "in the source none of them is"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("delivery-attempts", each) for each in (b"-3", b" 5", b"1_0", b"05", b"", b"\xd9\xa3", b"9" * 10)],
        *[("delivery-source-position", each) for each in (b"", b"T-3", b"T-3@-5", b"T-3@05")],
        *[("delivery-submitted-at", each) for each in (b"", b"now", b"9999999999999999")],
    ],
)
def test_headers_of_another_form_than_ours_are_not_believed(name: str, value: bytes) -> None:
    output = moved(open_one(Record(Origin(P, 5), b"v", b"k")), 60_000, "HTTP 500", NOW)
    there = Origin(Partition("T-g-retry-1", 0), 77)
    assert way_of(Record(there, b"v", b"k", output.headers)).origin == Origin(P, 5)
    assert way_of(Record(there, b"v", b"k", (*output.headers, (name, value)))) == Way(there)


@pytest.mark.parametrize(
    ("key", "headers", "flaw"),
    [
        (b"\x80ab", (), "the key of the record, which is the unit of work, is no UTF-8 (invalid start byte at byte 0)"),
        (b"k", (("delivery-id", b"x "),), "the header delivery-id begins or ends with a space"),
        (b"k", (("delivery-id", b"x"),), None),
    ],
)
def test_what_could_reach_a_wrong_unit_or_fit_in_no_header_is_undeliverable(
    key: bytes, headers: tuple[tuple[str, bytes], ...], flaw: str | None
) -> None:
    stages = stages_of(receiver("policy = blocking", is_kafka=True), "T", "g")
    reading = Reading(stages[0], SharedGate(stages[0].receiver), FixedClock(), "log")
    found = reading.open(Record(Origin(P, 5), b"v", key, headers), 0)
    assert found is not None
    problem = reading.find_flaw(found)
    assert (problem and str(problem)) == flaw


def test_a_clock_that_is_ahead_makes_no_wait_longer_than_the_interval() -> None:
    first = open_one(Record(Origin(P, 5), b"v", b"k"))
    output = moved(first, 60_000, "HTTP 500", NOW + 3_600_000)
    there = Record(Origin(Partition("T-g-retry-1", 0), 77), b"v", b"k", output.headers)
    assert open_one(there, 1).due_at == 1_000 + 60_000


def fail(gate: SharedGate, record: OpenRecord, outcome: Outcome, now: int = 0) -> Blame:
    """Make a call that fails, as a stage does; note in `record.error` what came of the doubt."""
    gate.begin(now, record.row)
    blame = gate.end(now, record, outcome)
    record.failed_at = gate.successes
    if blame is Blame.UNKNOWN:
        gate.doubt(record.row, Doubt(lambda: setattr(record, "error", "stands"), lambda: setattr(record, "error", "falls")))
    return blame


def some_records(count: int) -> list[OpenRecord]:
    return [
        OpenRecord(Record(Origin(P, at), b"", b"k"), Way(Origin(P, at)), f"k{at}", b"k", str(at), at, 0) for at in range(count)
    ]


def test_a_probe_that_gets_an_answer_for_good_opens_a_gate_that_sleep_has_shut_and_one_that_fails_does_not() -> None:
    gate, (first, second, third) = SharedGate(receiver("suspension { probe = 1s, most = 4s }")), some_records(3)
    assert fail(gate, first, Suspended("HTTP 503"), 10) is Blame.RECEIVER
    assert (gate.is_shut, gate.permits(10, 5), gate.permits(1_010, 5), gate.probe_in_ms(510)) == (True, 0, 1, 500)
    assert fail(gate, second, Again(BACK_OFF, 1, "HTTP 500"), 1_010) is Blame.RECEIVER, "it sleeps, so the attempt does not count"
    assert fail(gate, third, Failed("HTTP 400"), 9_000) is Blame.UNKNOWN
    assert not gate.is_shut


@pytest.mark.parametrize("outcome", [Again(BACK_OFF, 1, "HTTP 500"), Failed("HTTP 500", BACK_OFF), Failed("HTTP 404")])
def test_five_records_that_fail_one_after_the_other_shut_the_gate_and_are_given_back(outcome: Outcome) -> None:
    gate, records = SharedGate(receiver("suspension { probe = 1s, most = 4s }")), some_records(6)
    assert [fail(gate, each, outcome) for each in records[:4]] == [Blame.UNKNOWN] * 4
    assert fail(gate, records[3], outcome) is Blame.UNKNOWN, "the same one does not count twice"
    assert not gate.is_shut
    assert fail(gate, records[4], outcome) is Blame.RECEIVER
    assert [each.error for each in records] == [*["falls"] * 4, None, None]
    assert fail(gate, records[5], outcome, 1_000) is Blame.RECEIVER, "a probe that fails so opens no gate that failures have shut"
    assert (gate.is_shut, gate.running) == (True, 0)


def test_a_success_says_that_those_that_failed_before_are_to_blame_and_so_are_they_when_they_fail_again() -> None:
    gate, records = SharedGate(receiver()), some_records(7)
    for each in records[:4]:
        fail(gate, each, Failed("HTTP 400"))
    gate.begin(0, records[5].row)
    gate.end(0, records[5], Done())
    assert [each.error for each in records[:4]] == ["stands"] * 4
    assert [fail(gate, each, Failed("HTTP 400")) for each in records[:4]] == [Blame.RECORD] * 4
    assert fail(gate, records[4], Failed("HTTP 400")) is Blame.UNKNOWN
    assert not gate.is_shut


def test_a_record_is_spared_three_times_at_most_while_others_succeed() -> None:
    gate, records = SharedGate(receiver()), some_records(2)
    for given_back in range(3):
        records[0].given_back = given_back
        assert fail(gate, records[0], Failed("HTTP 400")) is Blame.UNKNOWN
        gate.begin(0, records[1].row)
        gate.end(0, records[1], Done())
    records[0].given_back = 3
    assert fail(gate, records[0], Failed("HTTP 400")) is Blame.RECORD


def test_a_record_of_which_no_other_answer_tells_is_judged_alone_and_once() -> None:
    gate, (record,) = SharedGate(receiver()), some_records(1)
    fail(gate, record, Failed("HTTP 400"))
    gate.judge_alone(record.row)
    assert record.error == "stands"
    record.error = None
    gate.judge_alone(record.row)
    assert record.error is None


def test_records_that_were_judged_before_shut_no_gate() -> None:
    gate = SharedGate(receiver())
    for each in some_records(20):
        gate.begin(0, each.row)
        assert gate.end(0, each, Again(BACK_OFF, 1, "HTTP 500"), counts_alone=True) is Blame.RECORD
    assert (gate.is_shut, gate.running) == (False, 0)


def test_a_retry_topic_without_an_interval_is_known_by_its_name() -> None:
    stages = stages_of(receiver("policy = retry-topics", "retry-topics.intervals = [1m]", is_kafka=True), "T", "g")
    asked = ["T-g-retry-1", "T-g-retry-2", "T-g-retry-12", "T-g-retry-02", "T-g-retry-x", "T-h-retry-2", "T-g-dlq", "U-g-retry-2"]
    assert [find_former_group(stages, each) for each in asked] == [None, "g-retry-2", "g-retry-12", *[None] * 5]
    stage = former_stage(stages, "T-g-retry-2", "g-retry-2")
    assert (stage.delay_ms, stage.next_topic, stage.dead_letters, stage.receiver.retry.attempts) == (0, None, "T-g-dlq", 1)
