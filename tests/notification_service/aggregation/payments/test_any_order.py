"""Counts and reports hold for whatever order, repetition and batches of commands, and after transactions that were aborted."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from harness.examples import examples
from harness.group_stage import KEY, GroupStage, command_record, marks_of, message, reports_of, status_body
from harness.kept_values import KeptValues
from hypothesis import given, settings
from hypothesis import strategies as st

from notification_service.aggregation.core import Slot, Stored, Turn
from notification_service.aggregation.payments.head import Head, Member, decode_head, decode_member
from resequencer.record import Record

FINALS = ("ACCC", "RJCT", "CANC")
UNITS = tuple("abcdef")


class Said(NamedTuple):
    unit: str
    status: str
    amount: str | None
    instruction: str | None
    late: bool


any_fact = st.builds(
    Said,
    st.sampled_from(UNITS),
    st.sampled_from(("RCVD", "ACSP", "PDNG", *FINALS)),
    st.sampled_from((None, "0", "1", "2.50", "0.10", "0.20", "7.125")),
    st.sampled_from((None, "PMT-1", "PMT-2")),
    st.sampled_from((False, False, False, True)),
)
chance = st.integers(0, 2**32).map(random.Random)


def recorded(facts: Sequence[Said], total: int | None = 1_000) -> list[Record]:
    """Return facts as commands, one place after the other."""
    return [
        command_record(
            each.unit,
            status_body(
                each.unit,
                each.status,
                amount=each.amount,
                instruction=each.instruction,
                late=each.late,
                original=message(total),
            ),
            offset,
        )
        for offset, each in enumerate(facts)
    ]


def batches(records: Sequence[Record], chance: random.Random) -> Iterator[Sequence[Record]]:
    begin = 0
    while begin < len(records):
        end = begin + chance.randint(1, 4)
        yield records[begin:end]
        begin = end


def played(records: Sequence[Record], chance: random.Random | None = None) -> tuple[dict[Slot, Stored], list[Any]]:
    """Apply commands one by one, or in batches by chance. Return the values and the reports."""
    stage, output = GroupStage(), []
    for batch in batches(records, chance) if chance else ([each] for each in records):
        output += stage.completions(stage.apply(*batch))
    return stage.values.stored, output


def head_in(values: dict[Slot, Stored]) -> Head:
    return decode_head(values[Slot(KEY)].body)


def members_in(values: dict[Slot, Stored]) -> dict[str, Member]:
    return {slot.member: decode_member(stored.body) for slot, stored in values.items() if slot.member}


def assert_counts_are_those_of(members: Sequence[Member], head: Head) -> None:
    """Compare the head with counts made anew from all members."""
    statuses = Counter(each.status for each in members)
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    unknown: Counter[str] = Counter()
    instructions: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in members:
        if each.amount is None:
            unknown[each.status] += 1
        else:
            sums[each.status] += Decimal(each.amount)
        if each.instruction is not None:
            instructions[each.instruction][each.status] += 1
    assert {status: tally.count for status, tally in head.statuses.items()} == statuses
    assert {status: Decimal(tally.total) for status, tally in head.statuses.items()} == {each: sums[each] for each in statuses}
    assert {status: tally.unknown for status, tally in head.statuses.items()} == {each: unknown[each] for each in statuses}
    assert {name: each.counts for name, each in head.instructions.items()} == instructions
    assert head.members == len(members)
    assert head.final == sum(statuses[each] for each in FINALS)
    assert list(head.statuses) == sorted(head.statuses)
    assert list(head.instructions) == sorted(head.instructions)


def latest_of(facts: Sequence[Said]) -> dict[str, tuple[str, Decimal | None, str | None]]:
    """Return status, amount and payment information of each unit, by the rules in other words."""
    found: dict[str, tuple[str, Decimal | None, str | None]] = {}
    for fact in facts:
        before = found.get(fact.unit)
        if before is not None and fact.late:
            continue
        amount = None if fact.amount is None else Decimal(fact.amount)
        known = before or ("", None, None)
        found[fact.unit] = fact.status, known[1] if amount is None else amount, fact.instruction or known[2]
    return found


@given(st.lists(any_fact, min_size=1, max_size=25), st.sampled_from([None, 2, 4, 6, 1_000]))
@settings(max_examples=examples(100))
def test_at_every_step_the_counts_are_those_of_the_members(facts: list[Said], total: int | None) -> None:
    stage = GroupStage()
    for step, record in enumerate(recorded(facts, total), 1):
        stage.apply(record)
        members = members_in(stage.values.stored)
        assert_counts_are_those_of(list(members.values()), stage.head)
        assert {
            unit: (each.status, None if each.amount is None else Decimal(each.amount), each.instruction)
            for unit, each in members.items()
        } == latest_of(facts[:step])


@given(st.lists(any_fact, min_size=1, max_size=20), st.sampled_from([None, 2, 4, 6]), chance)
@settings(max_examples=examples(100))
def test_commands_that_are_delivered_again_change_nothing(facts: list[Said], total: int | None, chance: random.Random) -> None:
    stage, records = GroupStage(), recorded(facts, total)
    once = played(records)
    output = []
    for position, record in enumerate(records):
        output += stage.completions(stage.apply(record))
        stage.now += 1
        again = stage.apply(*chance.sample(records[: position + 1], chance.randint(1, position + 1)))
        assert again.is_empty
        stage.now -= 1
    assert (stage.values.stored, output) == once


@given(st.lists(any_fact, min_size=1, max_size=20), st.sampled_from([None, 2, 4, 6]), chance)
@settings(max_examples=examples(100))
def test_commands_that_were_written_twice_count_once(facts: list[Said], total: int | None, chance: random.Random) -> None:
    doubled = [each for fact in facts for each in [fact] * chance.randint(1, 3)]
    (once, reports), (twice, again) = played(recorded(facts, total)), played(recorded(doubled, total))
    one, other = head_in(once), head_in(twice)
    assert (one.statuses, one.instructions, one.members, one.state) == (
        other.statuses,
        other.instructions,
        other.members,
        other.state,
    )
    assert [each.headers for each in reports] == [each.headers for each in again]


@given(st.lists(any_fact, min_size=1, max_size=20), chance)
@settings(max_examples=examples(100))
def test_any_order_of_commands_of_different_payments_gives_the_same_head(facts: list[Said], chance: random.Random) -> None:
    """The order of one payment's own commands is kept: later positions win."""
    waiting = {unit: [each for each in facts if each.unit == unit] for unit in UNITS}
    mixed = []
    while left := [unit for unit in UNITS if waiting[unit]]:
        mixed.append(waiting[chance.choice(left)].pop(0))
    one, other = played(recorded(facts))[0], played(recorded(mixed))[0]
    assert one[Slot(KEY)] == other[Slot(KEY)]


@given(st.lists(any_fact, max_size=20), st.lists(st.sampled_from(FINALS), min_size=6, max_size=6), chance)
@settings(max_examples=examples(100))
def test_a_group_is_reported_exactly_once_and_with_its_last_final_status(
    facts: list[Said], finals: list[str], chance: random.Random
) -> None:
    before = [each for each in facts if each.status not in FINALS]
    last = [Said(unit, status, None, None, False) for unit, status in zip(UNITS, finals, strict=True)]
    chance.shuffle(last)
    mixed: list[Said] = []
    for final in last:  # What a payment was before stands before its final status, and the rest anywhere.
        own = [each for each in before if each.unit == final.unit]
        place = len(mixed)
        mixed[place:place] = [*own, final]
    stage, records = GroupStage(), recorded(mixed, len(UNITS))
    reports: list[tuple[int, Any]] = []
    done = 0
    for batch in batches(records, chance):
        turn = stage.apply(*batch)
        done += len(batch)
        reports += [(done, each) for each in stage.completions(turn)]
    assert [(done, marks_of(each)["group-report"]) for done, each in reports] == [(len(records), "1")]
    stage.now += 1
    again = recorded([*mixed, *last], len(UNITS))[len(mixed) :]  # Written once more, at later places.
    assert stage.completions(stage.apply(*again)) == []
    assert stage.head.reports == 1
    assert reports_of(stage.processor.wake(stage.values, stage.now + 3_600_000, stage.now + 3_600_000).output) == []


@given(st.lists(any_fact, min_size=1, max_size=25), st.sampled_from([None, 2, 4, 6]), chance)
@settings(max_examples=examples(100))
def test_after_turns_that_were_thrown_away_the_result_is_the_same(
    facts: list[Said], total: int | None, chance: random.Random
) -> None:
    """A crash throws a turn away; the next begins with the same command, and may be shorter or longer."""
    records = recorded(facts, total)
    once = played(records)
    stage, output, begin = GroupStage(), [], 0
    while begin < len(records):
        batch = records[begin : begin + chance.randint(1, 5)]
        turn: Turn = stage.processor.apply(stage.values, batch, stage.now)
        if chance.random() < 0.5:
            stage.values.commit(turn)
            output += stage.completions(turn)
            begin += len(batch)
    assert (stage.values.stored, output) == once
    assert played(records, chance) == once


def test_the_values_of_a_stage_are_those_of_its_commits_alone() -> None:
    values = KeptValues()
    values.commit(Turn({Slot("k"): Stored(b"1", 5), Slot("k", "m"): Stored(b"2")}, ()))
    assert (values.due(4, 9), values.due(5, 9), values.members("k", 9)) == ([], ["k"], ["m"])
    values.commit(Turn({Slot("k"): None, Slot("k", "m"): None}, ()))
    assert values.stored == {}
