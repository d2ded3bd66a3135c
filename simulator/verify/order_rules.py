"""What each strategy promises about the order of a unit's notifications and about the mark `incomplete`.

SEQUENCE, one numbering: ascending over the whole unit, but for what is marked `late`. SEQUENCE, a numbering per flow:
ascending per flow only where every flow's envelopes arrived in their own order; elsewhere what follows a later one of its flow
is marked `late`. STRICT_SEQUENCE: ascending per flow. Both: nothing is marked `late` that follows no later one. FULL_*: the
envelope that completes the data first, then what had waited in order of arrival, then the rest as it arrives. Another strategy:
no order is known, none is checked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import msgspec

from simulator.expectation import ExpectedEnvelope, ExpectedUnit
from simulator.generate.envelopes import PART_TYPES
from simulator.verify.observation import ObservedNotification
from simulator.verify.verdict import Deviation, Finding

_FULL = frozenset({"FULL_PAIN001", "FULL_PAIN001_AND_CUSTOM_DATA", "FULL_PAIN001_AND_PDS_DATA"})


class Rules(msgspec.Struct, frozen=True):
    """What the service was configured with. The keys count only for the strategy that waits for them.

    `target_type` tells whether a notification's value is a report at all. `deadline_ms` is how long what is stashed waits.
    """

    strategy: str
    custom_data_keys: tuple[str, ...] = ()
    pds_data_keys: tuple[str, ...] = ()
    target_type: str = "report"
    deadline_ms: int = 21_000

    @property
    def has_report(self) -> bool:
        return self.target_type in ("report", "report-xml", "produced-report")

    @property
    def gathers(self) -> bool:
        return self.strategy in _FULL

    @property
    def needs_sequence(self) -> bool:
        return self.strategy in ("SEQUENCE", "STRICT_SEQUENCE")

    @property
    def required(self) -> frozenset[str]:
        """What a gathering strategy waits for, as the header `incomplete` names it."""
        custom = self.custom_data_keys if self.strategy == "FULL_PAIN001_AND_CUSTOM_DATA" else ()
        pds = self.pds_data_keys if self.strategy == "FULL_PAIN001_AND_PDS_DATA" else ()
        return frozenset((*PART_TYPES, *(f"customData:{key}" for key in custom), *(f"pdsData:{name}" for name in pds)))


class Seen(NamedTuple):
    """An expected notification as it was first observed: of which envelope, and which of its process objects."""

    envelope: ExpectedEnvelope
    at: int
    observed: ObservedNotification


def order_findings(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules) -> Iterator[Finding]:
    """What is wrong about order and marks. `seen` has each notification once, in the order of the output.

    Possible duplicates are left out: they were decided by a storage that had forgotten.
    """
    sure = [each for each in seen if not each.observed.is_possible_duplicate]
    if rules.gathers:
        yield from _gathering(unit, sure, rules)
    elif rules.needs_sequence:
        yield from _sequence(unit, sure, rules)


def _gathering(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules) -> Iterator[Finding]:
    arrivals = sorted((each for each in unit.envelopes if each.arrived is not None), key=lambda each: each.arrived or 0)
    in_time = [each for each in arrivals if not each.late]
    never = rules.required - _provided(arrivals)
    if rules.required <= _provided(in_time) and not _is_slow(unit, rules):
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
    """Whether the unit was written so slowly that a deadline may pass while nothing is missing but what has not happened yet.

    A sequence is not concerned: it waits for what was overtaken, and nothing is overtaken by more than the window.
    """
    return unit.lasts_ms > rules.deadline_ms // 2


def _sequence(unit: ExpectedUnit, seen: Sequence[Seen], rules: Rules) -> Iterator[Finding]:
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
    is_calm = not has_gap_by_design and not any(each.is_lost or each.late for each in unit.envelopes)
    may_be_late = (
        frozenset() if is_calm and is_promised else _after_later(unit, seen, lambda each: each.flow if is_strict else "")
    )
    yield from _false_marks(unit, seen, may_be_late, may_be_incomplete=not is_calm)
    if not has_gap_by_design and (is_strict or is_one_numbering) and not any(each.late for each in unit.envelopes):
        for envelopes, noticed in lanes:
            yield from _hidden_gaps(unit, envelopes, noticed)


def _lane(
    flow: str, envelopes: Iterable[ExpectedEnvelope], seen: Iterable[Seen]
) -> tuple[tuple[ExpectedEnvelope, ...], list[Seen]]:
    return tuple(each for each in envelopes if each.flow == flow), [each for each in seen if each.envelope.flow == flow]


def _kept_order(envelopes: Iterable[ExpectedEnvelope]) -> bool:
    arrived = [each.arrived for each in envelopes if each.arrived is not None]
    return arrived == sorted(arrived)


def _descents(unit: ExpectedUnit, seen: Sequence[Seen], places: Sequence[tuple[int, int]]) -> Iterator[Finding]:
    """Whatever stands behind something that has a later place."""
    highest: tuple[int, int] | None = None
    before = ""
    for each, place in zip(seen, places, strict=True):
        if highest is not None and place < highest:
            yield _finding(unit, Deviation.OUT_OF_ORDER, each, f"came after {before}")
            continue
        highest, before = place, _named(each)


def _after_later(unit: ExpectedUnit, seen: Iterable[Seen], lane_of: Callable[[ExpectedEnvelope], str]) -> frozenset[str]:
    """The ids of the envelopes that came after a later one of their lane, or may have: what notifies of nothing is not seen."""
    told = {each.envelope.envelope_id for each in seen}
    highest: dict[str, int] = {}
    for envelope in unit.envelopes:
        if envelope.envelope_id not in told and not envelope.is_lost:
            highest[lane_of(envelope)] = max(highest.get(lane_of(envelope), 0), envelope.sequence)
    following = set()
    for envelope, *_ in seen:
        lane = lane_of(envelope)
        if envelope.sequence < highest.get(lane, 0):
            following.add(envelope.envelope_id)
        highest[lane] = max(highest.get(lane, 0), envelope.sequence)
    return frozenset(following)


def _unmarked(unit: ExpectedUnit, seen: Iterable[Seen]) -> Iterator[Finding]:
    """Whatever follows a later one of its flow and does not say so; `seen` are those of a flow that are not marked `late`."""
    highest: Seen | None = None
    for each in seen:
        if highest is not None and each.envelope.sequence < highest.envelope.sequence:
            yield _finding(unit, Deviation.NOT_MARKED, each, f"came after {_named(highest)} and is not marked late")
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
    """Whatever follows a lost number directly must name it."""
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
