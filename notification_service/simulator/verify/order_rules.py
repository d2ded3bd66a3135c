"""Checks what each strategy promises about the order of a unit's notifications, and about the marks.

SEQUENCE with one numbering: ascending over the whole unit, except for what is marked `late`. SEQUENCE with a numbering per flow:
ascending per flow only if every flow's envelopes arrived in order; else what follows a later one of its flow is marked `late`.
STRICT_SEQUENCE: ascending per flow. For both, nothing is marked `late` unless it follows a later one. FULL_*: first the envelope
that completes the data, then those that had waited in order of arrival, then all others as they arrive; COMPLETE: the same.
WINDOW: ascending over the whole unit, except for what is marked `late` because it follows a later one. PREVIOUS: in each flow
behind the one before it, except for what is marked `late`. Other strategies: the order is unknown and not checked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import pairwise
from typing import NamedTuple

import msgspec

from notification_service.simulator.expectation import ExpectedEnvelope, ExpectedGarbage, ExpectedUnit
from notification_service.simulator.generate.envelopes import PART_TYPES
from notification_service.simulator.verify.observation import ObservedDeadLetter, ObservedNotification
from notification_service.simulator.verify.verdict import Deviation, Finding, Findings
from resequencer.dead_letter import DeadLetterReason
from resequencer.strategies.window import OrderBy

_FULL = frozenset({"FULL_PAIN001", "FULL_PAIN001_AND_CUSTOM_DATA", "FULL_PAIN001_AND_PDS_DATA"})
_COMPLETE, _WINDOW, _PREVIOUS = "COMPLETE", "WINDOW", "PREVIOUS"


class Rules(msgspec.Struct, frozen=True):
    """The service's configuration. Data keys, parts and `order_by` are used only by the strategy that has them.

    `target_type` decides whether a notification's value is a report. `deadline_ms` is how long a stashed envelope waits, with
    WINDOW the window.
    """

    strategy: str
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()
    target_type: str = "report"
    deadline_ms: int = 21_000
    required_parts: tuple[str, ...] = ()
    order_by: OrderBy = OrderBy.TIME

    @property
    def has_report(self) -> bool:
        return self.target_type in ("report", "report-xml", "produced-report")

    @property
    def gathers(self) -> bool:
        return self.strategy == _COMPLETE or self.strategy in _FULL

    @property
    def needs_sequence(self) -> bool:
        return self.strategy in ("SEQUENCE", "STRICT_SEQUENCE")

    @property
    def required(self) -> frozenset[str]:
        """What a gathering strategy waits for, in the words of the header `incomplete`."""
        if self.strategy == _COMPLETE:
            return frozenset(self.required_parts)
        custom = self.custom_data_keys if self.strategy == "FULL_PAIN001_AND_CUSTOM_DATA" else ()
        pds = self.pds_data_keys if self.strategy == "FULL_PAIN001_AND_PDS_DATA" else ()
        return frozenset((*PART_TYPES, *(f"customData:{key}" for key in custom), *(f"pdsData:{name}" for name in pds)))


class Seen(NamedTuple):
    """An expected notification as first observed, with its envelope and the index of its process object."""

    envelope: ExpectedEnvelope
    at: int
    observed: ObservedNotification


def order_findings(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules, *, is_disturbed: bool = False) -> Iterator[Finding]:
    """Yield the deviations in order and marks. `seen` has each notification once, in the order of the output.

    `is_disturbed` is set if an operator's order changed what the unit waits for, or until when: it may then be released at any
    time, and what it releases names whatever was missing at that moment.

    Possible duplicates do not count, because the storage behind them had lost its state.
    """
    sure = [each for each in seen if not each.observed.is_possible_duplicate]
    if rules.gathers:
        yield from _gathering(unit, sure, rules, is_disturbed=is_disturbed)
    elif rules.needs_sequence:
        yield from _sequence(unit, sure, rules, is_disturbed=is_disturbed)
    elif rules.strategy == _WINDOW:
        yield from _window(unit, sure, rules, is_disturbed=is_disturbed)
    elif rules.strategy == _PREVIOUS:
        yield from _chains(unit, sure, is_disturbed=is_disturbed)


def _gathering(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules, *, is_disturbed: bool) -> Iterator[Finding]:
    arrivals = sorted((each for each in unit.envelopes if each.arrived is not None), key=lambda each: each.arrived or 0)
    in_time = [each for each in arrivals if not each.late]
    never = rules.required - _provided(arrivals)
    if rules.required <= _provided(in_time) and not is_disturbed and not _is_slow(unit, rules):
        completing = next(at for at in range(len(in_time)) if rules.required <= _provided(in_time[: at + 1]))
        order = [arrivals[completing], *arrivals[:completing], *arrivals[completing + 1 :]]
        ranks = {each.envelope_id: rank for rank, each in enumerate(order)}
        yield from _descents(unit, seen, [(ranks.get(each.envelope.envelope_id, 0), each.at) for each in seen])
        yield from _false_marks(unit, seen)
    for each in seen:
        missing = never - set((each.observed.incomplete or "").split(","))
        if missing:
            yield _finding(unit, Deviation.NOT_MARKED, each, f"released without {', '.join(sorted(missing))}")


def _is_slow(unit: ExpectedUnit, rules: Rules) -> bool:
    """Return whether the unit was written so slowly that a deadline may pass before all its envelopes were written.

    This does not affect sequences: they wait only for overtaken envelopes, which are at most the window away.
    """
    return unit.lasts_ms > rules.deadline_ms // 2


def _sequence(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules, *, is_disturbed: bool) -> Iterator[Finding]:
    is_one_numbering = unit.numbering == "shared" or len(unit.flows) == 1
    is_strict = rules.strategy == "STRICT_SEQUENCE"
    lanes = [(unit.envelopes, [each for each in seen if not each.observed.is_late])]
    if is_strict or not is_one_numbering:
        lanes = [_lane(flow, *lanes[0]) for flow in unit.flows]
    is_promised = is_strict or is_one_numbering or all(_kept_order(envelopes) for envelopes, _ in lanes)
    for _, noticed in lanes:
        if is_promised:
            yield from _descents(unit, noticed, [(each.envelope.sequence, each.at) for each in noticed])
        else:
            yield from _unmarked(unit, noticed)
    has_gap_by_design = is_strict and unit.numbering == "shared" and len(unit.flows) > 1
    is_calm = not is_disturbed and not has_gap_by_design and not any(each.is_lost or each.late for each in unit.envelopes)
    may_be_late = (
        frozenset() if is_calm and is_promised else _after_later(unit, seen, lambda each: each.flow if is_strict else "")
    )
    yield from _false_marks(unit, seen, may_be_late, may_be_incomplete=not is_calm)
    may_name_others = is_disturbed or has_gap_by_design or any(each.late for each in unit.envelopes)
    if not may_name_others and (is_strict or is_one_numbering):
        for envelopes, noticed in lanes:
            yield from _hidden_gaps(unit, envelopes, noticed)


def _window(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules, *, is_disturbed: bool) -> Iterator[Finding]:
    """Yield the deviations where all of a unit are ordered by number, or by time, which in the true order rises."""
    places = {each.envelope_id: number for number, each in enumerate(unit.envelopes)}
    if rules.order_by is OrderBy.SEQUENCE:
        places = {each.envelope_id: each.sequence for each in unit.envelopes}
    ranked = [(each, places[each.envelope.envelope_id]) for each in seen]
    timely = [each for each in ranked if not each[0].observed.is_late]
    yield from _descents(unit, [each for each, _ in timely], [(place, each.at) for each, place in timely])
    is_calm = not is_disturbed and not _is_slow(unit, rules) and not any(each.late for each in unit.envelopes)
    highest, following = 0, set[str]()
    for each, place in ranked:
        if place < highest:
            following.add(each.envelope.envelope_id)
        highest = max(highest, place)
    yield from _false_marks(unit, seen, frozenset() if is_calm else following, may_be_incomplete=is_disturbed)


def _chains(unit: ExpectedUnit, seen: Sequence[Seen], *, is_disturbed: bool) -> Iterator[Finding]:
    """Yield the deviations where each event of a flow names the one before it, and nothing knows more of the order."""
    places = {each.envelope.envelope_id: (at, each) for at, each in enumerate(seen)}
    overtaken = set[str]()
    is_calm = not is_disturbed and not any(each.is_lost or each.late for each in unit.envelopes)
    may_name_others = is_disturbed or any(each.late for each in unit.envelopes)
    for flow in unit.flows:
        chain = [each for each in unit.envelopes if each.flow == flow]
        for before, after in pairwise(chain):
            (first, one), (second, other) = (places.get(each.envelope_id, (-1, None)) for each in (before, after))
            if one is not None and other is not None and second < first:
                overtaken.add(before.envelope_id)
                if not one.observed.is_late:
                    yield _finding(unit, Deviation.OUT_OF_ORDER, one, f"came after {_named(other)}")
            missing = f"previous:{before.envelope_id}"
            if before.is_lost and other is not None and not may_name_others and other.observed.incomplete != missing:
                yield _finding(unit, Deviation.NOT_MARKED, other, f"follows a lost one, marked {other.observed.incomplete}")
    yield from _false_marks(unit, seen, overtaken, may_be_incomplete=not is_calm)


def _lane(
    flow: str, envelopes: Iterable[ExpectedEnvelope], seen: Iterable[Seen]
) -> tuple[tuple[ExpectedEnvelope, ...], list[Seen]]:
    return tuple(each for each in envelopes if each.flow == flow), [each for each in seen if each.envelope.flow == flow]


def _kept_order(envelopes: Iterable[ExpectedEnvelope]) -> bool:
    arrived = [each.arrived for each in envelopes if each.arrived is not None]
    return arrived == sorted(arrived)


def _descents(unit: ExpectedUnit, seen: Sequence[Seen], places: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Yield a finding for whatever comes behind something of a later place."""
    highest: tuple[int, int] | None = None
    before = ""
    for each, place in zip(seen, places, strict=True):
        if highest is not None and place < highest:
            yield _finding(unit, Deviation.OUT_OF_ORDER, each, f"came after {before}")
            continue
        highest, before = place, _named(each)


def _after_later(unit: ExpectedUnit, seen: Iterable[Seen], lane_of: Callable[[ExpectedEnvelope], str]) -> frozenset[str]:
    """Return the ids of envelopes that came, or may have come, after a later one of their lane.

    Envelopes without notifications are not visible in the output, so they may have come before any other.
    """
    notified = {each.envelope.envelope_id for each in seen}
    highest: dict[str, int] = {}
    for envelope in unit.envelopes:
        if envelope.envelope_id not in notified and not envelope.is_lost:
            highest[lane_of(envelope)] = max(highest.get(lane_of(envelope), 0), envelope.sequence)
    following = set()
    for envelope, *_ in seen:
        lane = lane_of(envelope)
        if envelope.sequence < highest.get(lane, 0):
            following.add(envelope.envelope_id)
        highest[lane] = max(highest.get(lane, 0), envelope.sequence)
    return frozenset(following)


def _unmarked(unit: ExpectedUnit, seen: Iterable[Seen]) -> Iterator[Finding]:
    """Yield a finding for what follows a later one without a mark. `seen` are those of a flow that are not marked `late`."""
    highest: Seen | None = None
    for each in seen:
        if highest is not None and each.envelope.sequence < highest.envelope.sequence:
            yield _finding(unit, Deviation.NOT_MARKED, each, f"came after {_named(highest)}, but is not marked late")
        else:
            highest = each


def _false_marks(
    unit: ExpectedUnit, seen: Iterable[Seen], may_be_late: Set[str] = frozenset(), *, may_be_incomplete: bool = False
) -> Iterator[Finding]:
    for each in seen:
        marks = [] if may_be_incomplete else [f"incomplete: {each.observed.incomplete}"] * (each.observed.incomplete is not None)
        marks += ["late"] * (each.observed.is_late and each.envelope.envelope_id not in may_be_late)
        if marks:
            yield _finding(unit, Deviation.FALSELY_MARKED, each, f"is marked {' and '.join(marks)}, but nothing was missing")


def _hidden_gaps(unit: ExpectedUnit, envelopes: Iterable[ExpectedEnvelope], seen: Sequence[Seen]) -> Iterator[Finding]:
    """Yield a finding for what directly follows a lost number without naming it."""
    lost: list[int] = []
    for envelope in envelopes:
        if envelope.is_lost:
            lost.append(envelope.sequence)
            continue
        for each in seen if lost else ():
            if each.envelope is envelope and each.observed.incomplete not in {f"sequence:{number}" for number in lost}:
                yield _finding(unit, Deviation.NOT_MARKED, each, f"follows lost {lost}, marked {each.observed.incomplete}")
        lost = []


def _provided(envelopes: Iterable[ExpectedEnvelope]) -> frozenset[str]:
    provided: set[str] = set()
    for each in envelopes:
        provided |= {*each.parts, *(f"customData:{key}" for key in each.custom), *(f"pdsData:{name}" for name in each.pds)}
    return frozenset(provided)


def _finding(unit: ExpectedUnit, deviation: Deviation, seen: Seen, what: str) -> Finding:
    return Finding(deviation, unit.unit, f"{_named(seen)} {what}")


def _named(seen: Seen) -> str:
    return f"{seen.envelope.processes[seen.at].event} ({seen.envelope.flow} #{seen.envelope.sequence})"


_OF_SEQUENCE_STRATEGIES = frozenset({DeadLetterReason.NO_SEQUENCE.value, DeadLetterReason.INVALID_SEQUENCE.value})
"""A missing or wrong sequence is no fault for a strategy that does not order by it."""

_At = tuple[int, int]
"""A partition and an offset."""


class DeadLetterCheck:
    """Compares dead letters with the garbage that was written, by source position. The two may be added in any order.

    Memory holds the expectations and the position of each dead letter that came. The order of dead letters is not checked,
    because on topics they may be in two partitions. A record that was requeued and became a dead letter again was checked the
    first time, at the position where it was written.
    """

    def __init__(self, rules: Rules) -> None:
        self._needs_sequence = rules.needs_sequence
        self._expected: dict[_At, ExpectedGarbage] = {}
        self._early: dict[_At, list[ObservedDeadLetter]] = {}
        self._came: set[_At] = set()
        self._unmarked: set[_At] = set()
        self._ordered: set[_At] = set()
        self.count = 0

    @property
    def outstanding(self) -> int:
        """The number of dead letters still to come, plus those that came and are not yet expected."""
        return sum(map(self._is_due, self._expected.values())) + len(self._early)

    def expect(self, garbage: ExpectedGarbage, findings: Findings) -> None:
        position = (garbage.partition, garbage.offset)
        if position in self._came:
            return
        self._expected[position] = garbage
        for dead_letter in self._early.pop(position, ()):
            self._compare(position, dead_letter, findings)

    def came(self, dead_letter: ObservedDeadLetter, findings: Findings) -> None:
        self.count += 1
        if dead_letter.position is None:
            findings.add(_unexpected("no source position", dead_letter))
        elif dead_letter.reason == DeadLetterReason.ORDERED:
            self._count_once(dead_letter.position, dead_letter, findings)
            self._ordered.add(dead_letter.position)
        elif dead_letter.is_requeued:
            self._count_once(dead_letter.position, dead_letter, findings)
        elif dead_letter.position in self._came or dead_letter.position in self._expected:
            self._compare(dead_letter.position, dead_letter, findings)
        else:
            self._early.setdefault(dead_letter.position, []).append(dead_letter)

    def refuse_early(self, findings: Findings) -> None:
        """Report the dead letters that nothing explains, after all expectations were added."""
        for position, dead_letters in self._early.items():
            for dead_letter in dead_letters:
                findings.add(_unexpected(_where(position), dead_letter))
        self._early.clear()

    def differing_orders(self, done: Set[_At]) -> int:
        """Return in how many positions the dead letters that came and the orders that were done differ."""
        return len(self._ordered ^ done)

    def end_orders(self, done: Set[_At], findings: Findings) -> None:
        """Compare the dead letters that operators ordered with the positions that orders which were done name."""
        for position in sorted(self._ordered - done):
            what = "it became a dead letter because of an order, but no such order was done"
            findings.add(Finding(Deviation.DEAD_LETTER_WITHOUT_ORDER, _where(position), what))
        for position in sorted(done - self._ordered):
            what = "an order was done that makes it a dead letter, but there is none"
            findings.add(Finding(Deviation.DEAD_LETTER_MISSING, _where(position), what))

    def end(self, findings: Findings) -> None:
        """Report missing dead letters too, after all of them were added."""
        self.refuse_early(findings)
        for position, expected in self._expected.items():
            if self._is_due(expected):
                what = f"no dead letter {expected.reason} for garbage ({expected.kind})"
                findings.add(Finding(Deviation.DEAD_LETTER_MISSING, _where(position), what))

    def _compare(self, position: _At, dead_letter: ObservedDeadLetter, findings: Findings) -> None:
        self._count_once(position, dead_letter, findings)
        if position in self._came:
            return
        self._came.add(position)
        expected = self._expected.pop(position)
        if dead_letter.reason != expected.reason:
            what = f"{dead_letter.reason}, not {expected.reason} ({expected.kind})"
            findings.add(Finding(Deviation.DEAD_LETTER_WRONG_REASON, _where(position), what))

    def _count_once(self, position: _At, dead_letter: ObservedDeadLetter, findings: Findings) -> None:
        if dead_letter.is_possible_duplicate:
            return
        if position in self._unmarked:
            findings.add(
                Finding(Deviation.DEAD_LETTER_DOUBLED, _where(position), f"{dead_letter.reason} was sent more than once")
            )
        self._unmarked.add(position)

    def _is_due(self, expected: ExpectedGarbage) -> bool:
        return self._needs_sequence or expected.reason not in _OF_SEQUENCE_STRATEGIES


def _unexpected(where: str, dead_letter: ObservedDeadLetter) -> Finding:
    return Finding(Deviation.DEAD_LETTER_UNEXPECTED, where, f"{dead_letter.reason}, but no garbage was written there")


def _where(position: _At) -> str:
    return f"partition {position[0]} at {position[1]}"
