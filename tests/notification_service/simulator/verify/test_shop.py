"""The judge of records that leave as they came: it finds each fault that is planted, and none in what is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.events.cloudevents import CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.simulator.expectation import ExpectedEnvelope, ExpectedUnit
from notification_service.simulator.generate.plan import Events, Flows, Numbering
from notification_service.simulator.verify.following import Compared, Following
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation, Verdict
from notification_service.simulator.verify.verification import verify
from resequencer.record import Origin, Partition, Record
from resequencer.strategies.window import OrderBy
from tests.notification_service.simulator.conftest import Outcome, Run, dead_letter_of, outcomes

SEQUENCE, STRICT, PREVIOUS = Rules("SEQUENCE"), Rules("STRICT_SEQUENCE"), Rules("PREVIOUS")
COMPLETE = Rules("COMPLETE", required_parts=("order.created", "order.paid"))
BY_TIME, BY_NUMBER = (Rules("WINDOW", order_by=each, deadline_ms=2_000) for each in OrderBy)
WILD: dict[str, Any] = {
    "events": Events.SHOP,
    "duplicates": 0.1,
    "losses": 0.03,
    "late": 0.03,
    "garbage": 0.02,
    "conflicts": 0.03,
}
CALM: dict[str, Any] = {"events": Events.SHOP, "losses": 0, "late": 0, "garbage": 0, "numbering": Numbering.SHARED}
SOURCE = Partition("IPF_PROCESSING_DATA", 0)


class Sent(NamedTuple):
    """A record of the output, and the number of the event in its unit."""

    line: Line
    unit: str
    index: int

    def changed(self, **fields: Any) -> Sent:
        line = {"value": self.line.value, "key": self.line.key, "headers": self.line.headers} | fields
        return self._replace(line=Line(**line))

    def marked(self, name: str, text: bytes = b"true") -> Sent:
        return self.changed(headers=(*self.line.headers, (f"resequencer-{name}", text)))


def in_window(unit: ExpectedUnit, rules: Rules) -> list[Outcome]:
    """Return what leaves with WINDOW, late ones behind all others."""
    places = {each.envelope_id: number for number, each in enumerate(unit.envelopes)}
    if rules.order_by is OrderBy.SEQUENCE:
        places = {each.envelope_id: each.sequence for each in unit.envelopes}
    arrived = sorted((each for each in unit.envelopes if not each.is_lost), key=lambda each: each.arrived or 0)
    timely = sorted((each for each in arrived if not each.late), key=lambda each: places[each.envelope_id])
    highest, found = -1, []
    for each in (*timely, *sorted((each for each in arrived if each.late), key=lambda each: places[each.envelope_id])):
        found.append(Outcome(each, is_late=places[each.envelope_id] < highest))
        highest = max(highest, places[each.envelope_id])
    return found


def in_chains(unit: ExpectedUnit) -> Iterator[Outcome]:
    """Yield what leaves with PREVIOUS."""
    before = {
        after.envelope_id: one.envelope_id
        for flow in unit.flows
        for one, after in pairwise([each for each in unit.envelopes if each.flow == flow])
    }
    arrived = sorted((each for each in unit.envelopes if not each.is_lost), key=lambda each: each.arrived or 0)
    stash, counted, passed = dict[str, ExpectedEnvelope](), set[str](), set[str]()

    def handle(envelope: ExpectedEnvelope, mark: str | None = None) -> Iterator[Outcome]:
        own = envelope.envelope_id
        yield Outcome(envelope, mark, own in passed)
        counted.add(own)
        for following in [each for each in stash.values() if before[each.envelope_id] == own]:
            yield from handle(stash.pop(following.envelope_id), mark)

    for is_late in (False, True):
        for envelope in (each for each in arrived if each.late is is_late):
            if before.get(envelope.envelope_id) in (None, *counted, *passed):
                yield from handle(envelope)
            else:
                stash[envelope.envelope_id] = envelope
        while stash:
            head = next(each for each in stash.values() if before[each.envelope_id] not in stash)
            missing = before[stash.pop(head.envelope_id).envelope_id]
            passed.add(missing)
            yield from handle(head, f"previous:{missing}")


def published_of(unit: ExpectedUnit, rules: Rules) -> Iterable[Outcome]:
    if rules is PREVIOUS:
        return in_chains(unit)
    return in_window(unit, rules) if rules.strategy == "WINDOW" else outcomes(unit, rules)


def records(run: Run) -> dict[str, Line]:
    """Return what was written of each event that counts, by its digest; written from the contract, not from the judge."""
    decoder, found = CloudEventDecoder(DecodingSettings(needs_sequence=True)), {}
    for each in run.partition().splitlines():
        line = decode_line(each)
        if isinstance(line, Line):
            event = decoder.decode(Record(Origin(SOURCE, 0), line.value, line.key, line.headers))
            found.setdefault(getattr(event, "event_id", ""), line)
    return found


def sent(run: Run, rules: Rules) -> list[Sent]:
    """Return the output of a faultless service."""
    came, found = records(run), []
    for unit in run.units:
        numbers = {each.envelope_id: number for number, each in enumerate(unit.envelopes)}
        for outcome in published_of(unit, rules):
            envelope, line = outcome.envelope, came[outcome.envelope.envelope_id]
            ours = [("notification-id", envelope.processes[0].notification_id), ("source-position", f"{SOURCE}@1")]
            ours += [("unit-of-work", unit.unit)] * (line.key != unit.unit.encode())
            ours += [("incomplete", outcome.incomplete)] * (outcome.incomplete is not None) + [("late", "true")] * outcome.is_late
            headers = (
                *((name.replace("resequencer-", "resequencer-original-"), value) for name, value in line.headers),
                *((f"resequencer-{name}", text.encode()) for name, text in ours),
            )
            found.append(Sent(Line(line.value, line.key, headers), unit.unit, numbers[envelope.envelope_id]))
    return found


def judged(run: Run, rules: Rules, output: list[Sent], dead_letters: list[bytes] | None = None) -> Verdict:
    lines = [encode_line(each.line)[:-1] for each in output]
    letters = [dead_letter_of(each) for each in run.garbage] if dead_letters is None else dead_letters
    return verify(rules, run.expected_lines, lines, letters)


def deviations(verdict: Verdict) -> dict[Deviation, int]:
    return {name: count for name, count in verdict.counts if count}


@pytest.mark.parametrize("flows", [Flows.ONE, Flows.TWO])
@pytest.mark.parametrize("rules", [SEQUENCE, STRICT, PREVIOUS, COMPLETE, BY_TIME, BY_NUMBER], ids=lambda each: each.strategy)
def test_what_is_right_is_found_to_be_right(known_run: Callable[..., Run], rules: Rules, flows: Flows):
    numbering = Numbering.SEPARATE if rules in (STRICT, PREVIOUS) else Numbering.SHARED
    run = known_run(**WILD, flows=flows, numbering=numbering)
    assert run.summary.lost
    assert run.summary.late
    assert run.summary.conflicts
    verdict = judged(run, rules, sent(run, rules))
    assert (verdict.is_good, verdict.examples) == (True, ())
    assert verdict.notifications == run.summary.notifications


def place(output: list[Sent], index: int = 2) -> int:
    """Return the place of event `index` of an order that has its neighbours behind it."""
    return next(at for at, each in enumerate(output) if each.index == index and output[at + 1].unit == each.unit)


def lost(output: list[Sent]) -> None:
    del output[place(output)]


def doubled(output: list[Sent]) -> None:
    output.append(output[place(output)])


def swapped(output: list[Sent]) -> None:
    at = place(output)
    output[at : at + 2] = reversed(output[at : at + 2])


def altered(**how: Callable[[Sent], Any]) -> Callable[[list[Sent]], None]:
    def alter(output: list[Sent]) -> None:
        at = place(output)
        output[at] = output[at].changed(**{name: change(output[at]) for name, change in how.items()})

    return alter


def marked(name: str, text: bytes = b"true") -> Callable[[list[Sent]], None]:
    def mark(output: list[Sent]) -> None:
        output[place(output)] = output[place(output)].marked(name, text)

    return mark


def other_key(each: Sent) -> bytes:
    return (each.line.key or b"") + b" "


def unit_named(each: Sent) -> Any:
    return (*each.line.headers, ("resequencer-unit-of-work", each.unit.encode()))


PLANTED: dict[str, tuple[Callable[[list[Sent]], None], Deviation]] = {
    "lost": (lost, Deviation.LOST),
    "doubled": (doubled, Deviation.DOUBLED),
    "swapped": (swapped, Deviation.OUT_OF_ORDER),
    "a byte of the value": (altered(value=lambda each: each.line.content[:-1] + b"\x01"), Deviation.WRONG_CONTENT),
    "an empty value": (altered(value=lambda each: b""), Deviation.WRONG_CONTENT),
    "another key": (altered(key=other_key, headers=unit_named), Deviation.WRONG_CONTENT),
    "a header less": (altered(headers=lambda each: each.line.headers[1:]), Deviation.WRONG_CONTENT),
    "headers swapped": (
        altered(headers=lambda each: (each.line.headers[1], each.line.headers[0], *each.line.headers[2:])),
        Deviation.WRONG_CONTENT,
    ),
    "a header behind ours": (altered(headers=lambda each: (*each.line.headers, ("more", b"1"))), Deviation.WRONG_CONTENT),
    "a header moved behind ours": (
        altered(headers=lambda each: (*each.line.headers[1:], each.line.headers[0])),
        Deviation.WRONG_CONTENT,
    ),
    "another partition": (
        altered(
            headers=lambda each: tuple(
                (name, b"IPF_PROCESSING_DATA-3@1" if name == "resequencer-source-position" else value)
                for name, value in each.line.headers
            )
        ),
        Deviation.WRONG_CONTENT,
    ),
    "late without a cause": (marked("late"), Deviation.FALSELY_MARKED),
    "incomplete without a cause": (marked("incomplete", b"sequence:2"), Deviation.FALSELY_MARKED),
    "released without an order": (marked("released-by", b"operator"), Deviation.RELEASED_WITHOUT_ORDER),
}


@pytest.mark.parametrize(
    "rules", [SEQUENCE, STRICT, PREVIOUS, BY_TIME, BY_NUMBER], ids=lambda each: f"{each.strategy} {each.order_by}"
)
@pytest.mark.parametrize("fault", list(PLANTED))
def test_a_planted_fault_is_found_and_nothing_else(known_run: Callable[..., Run], fault: str, rules: Rules):
    run = known_run(**CALM, flows=Flows.ONE)
    output = sent(run, rules)
    plant, deviation = PLANTED[fault]
    plant(output)
    assert deviations(judged(run, rules, output)) == {deviation: 1}


def test_with_parts_what_does_not_come_behind_them_by_arrival_is_found(known_run: Callable[..., Run]):
    run = known_run(**CALM, flows=Flows.ONE)
    output = sent(run, COMPLETE)
    swapped(output)
    assert deviations(judged(run, COMPLETE, output)) == {Deviation.OUT_OF_ORDER: 1}


@pytest.mark.parametrize("rules", [SEQUENCE, PREVIOUS], ids=lambda each: each.strategy)
def test_a_gap_that_is_not_named_is_found(known_run: Callable[..., Run], rules: Rules):
    run = known_run(**(WILD | {"late": 0, "numbering": Numbering.SHARED, "flows": Flows.ONE}))
    output = sent(run, rules)
    at = next(at for at, each in enumerate(output) if "resequencer-incomplete" in dict(each.line.headers))
    headers = tuple(each for each in output[at].line.headers if each[0] != "resequencer-incomplete")
    output[at] = output[at].changed(headers=headers)
    assert deviations(judged(run, rules, output)) == {Deviation.NOT_MARKED: 1}


def test_a_part_that_never_came_and_is_not_named_is_found(known_run: Callable[..., Run]):
    run = known_run(**WILD, flows=Flows.ONE)
    rules = Rules("COMPLETE", required_parts=("order.created", "order.lost"))
    output = [each for each in sent(run, rules) if each.unit == run.units[0].unit]
    unmarked = [
        each.changed(headers=tuple(one for one in each.line.headers if one[0] != "resequencer-incomplete")) for each in output
    ]
    expected = [line for line in run.expected_lines if run.units[0].unit.encode() in line]
    lines = [encode_line(each.line)[:-1] for each in unmarked]
    assert deviations(verify(rules, expected, lines, [])) == {Deviation.NOT_MARKED: len(lines)}


@pytest.mark.parametrize("rules", [SEQUENCE, BY_TIME], ids=lambda each: each.strategy)
@pytest.mark.parametrize("fault", [None, "a byte of the value", "swapped"])
def test_followed_it_is_judged_alike(known_run: Callable[..., Run], tmp_path: Path, rules: Rules, fault: str | None):
    run = known_run(**CALM, flows=Flows.ONE)
    output, files = sent(run, rules), Compared(*(tmp_path / name for name in ("expected", "notifications", "letters")))
    if fault is not None:
        PLANTED[fault][0](output)
    files.expected.write_bytes(b"".join(line + b"\n" for line in run.expected_lines))
    files.notifications.write_bytes(b"".join(encode_line(each.line) for each in output))
    with closing(Following(rules, files)) as following:
        look = following.look()
        assert (look.is_complete, look.deviations) == (True, 0 if fault is None else 1)
        assert following.verdict() == judged(run, rules, output)


def test_what_repeats_is_right_only_with_its_mark(known_run: Callable[..., Run]):
    run = known_run(**CALM, flows=Flows.ONE)
    output = sent(run, SEQUENCE)
    assert judged(run, SEQUENCE, [*output, output[7].marked("possible-duplicate")]).is_good


def test_what_was_not_sent_and_a_dead_letter_less_are_found(known_run: Callable[..., Run]):
    run = known_run(**WILD, flows=Flows.ONE)
    output = sent(run, SEQUENCE)
    came = dict(output[0].line.headers)
    headers = tuple(came | {"resequencer-notification-id": b"A" * 32})
    foreign = output[0].changed(headers=tuple((name, b"A" * 32 if "notification" in name else came[name]) for name in headers))
    letters = [dead_letter_of(each) for each in run.garbage][1:]
    assert deviations(judged(run, SEQUENCE, [*output, foreign], letters)) == {
        Deviation.UNEXPECTED: 1,
        Deviation.DEAD_LETTER_MISSING: 1,
    }


def test_a_notification_on_a_payment_is_no_record_of_the_shop(known_run: Callable[..., Run]):
    run = known_run(**CALM, flows=Flows.ONE)
    output = sent(run, SEQUENCE)
    headers = tuple((name.removeprefix("resequencer-"), value) for name, value in output[0].line.headers)
    output[0] = output[0].changed(headers=headers, key=output[0].unit.encode())
    assert deviations(judged(run, SEQUENCE, output)) == {Deviation.WRONG_CONTENT: 1}
