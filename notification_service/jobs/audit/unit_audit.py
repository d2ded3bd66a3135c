"""Compares the output of a unit with what its arrivals require."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from guardian.headers import LOOKUPS_VERSION
from notification_service.jobs.audit.finding import Deviation, Finding
from notification_service.jobs.audit.observed import ObservedDeadLetter, ObservedNotification, digest_of
from notification_service.jobs.audit.replay import Emission, Replay, StagedReplay
from notification_service.jobs.audit.replay_handler import UNKNOWN
from notification_service.jobs.audit.rules import AuditRules
from notification_service.jobs.audit.unit_output import UnitOutput
from resequencer.dead_letter import DeadLetter
from resequencer.event import Event


class ExpectedDeadLetter(NamedTuple):
    """The dead letter of the record at `offset`. It must exist once all records up to `trigger` are settled.

    `digest` is that of the record's bytes.
    """

    offset: int
    trigger: int
    reason: str
    error: str
    digest: bytes


def dead_letter_findings(
    unit: str | None,
    partition: int,
    expected: Iterable[ExpectedDeadLetter],
    seen: Mapping[int, Sequence[ObservedDeadLetter]],
    settled: int,
) -> Iterator[Finding]:
    """Compare expected dead letters with those seen, by their records' offsets. Those due from `settled` on may still come."""
    known = set[int]()
    for each in expected:
        known.add(each.offset)
        dead_letters = seen.get(each.offset, ())
        if dead_letters:
            yield from _differences(unit, partition, each, dead_letters)
        elif each.trigger < settled:
            what = f"the record had to become a dead letter ({each.reason}: {each.error}), but there is none"
            yield Finding(Deviation.DEAD_LETTER_MISSING, unit, partition, each.offset, what)
    for offset, dead_letters in seen.items():
        if offset not in known:
            what = f"there is a dead letter ({dead_letters[0].reason}), but no record at its position had to become one"
            yield Finding(Deviation.DEAD_LETTER_UNEXPLAINED, unit, partition, offset, what)


def _differences(
    unit: str | None, partition: int, expected: ExpectedDeadLetter, dead_letters: Sequence[ObservedDeadLetter]
) -> Iterator[Finding]:
    first, offset = dead_letters[0], expected.offset
    if first.reason != expected.reason:
        what = f"the dead letter has the reason {first.reason}, but the record's is {expected.reason}"
        yield Finding(Deviation.DEAD_LETTER_WRONG_REASON, unit, partition, offset, what)
    if first.digest is not None and first.digest != expected.digest:
        yield Finding(Deviation.DEAD_LETTER_CHANGED, unit, partition, offset, "the dead letter has other bytes than the record")
    if sum(not each.is_possible_duplicate for each in dead_letters) > 1:
        yield Finding(Deviation.DEAD_LETTER_DOUBLED, unit, partition, offset, "the dead letter was sent more than once")


NOT_KNOWN = digest_of(UNKNOWN)
"""The digest of content that cannot be known."""


class AuditedUnit(NamedTuple):
    """The result for one unit. `open` counts the notifications that may still come.

    `is_waiting` is set if a release of its stash would publish something.
    """

    findings: list[Finding]
    open: int
    replay: Replay
    is_waiting: bool


class UnitAudit:
    """Checks one unit in one partition. Add all its output first, then call `arrive` for each arrival, both in order.

    Output of records at or beyond `settled` may still come.
    """

    def __init__(self, partition: int, unit: str, rules: AuditRules) -> None:
        self.output = UnitOutput()
        self._partition = partition
        self._unit = unit
        self.settled = rules.settings.settled.get(partition, 0)
        self._envelopes: dict[int, bytes] = {}
        rules.handler.output = self.output
        self._replays = StagedReplay(unit, rules, self.output)

    def arrive(self, envelope: Event, value_digest: bytes) -> bool:
        """Replay an arrival; return whether it counts (a duplicate does not). `value_digest` is that of the record's bytes."""
        self._envelopes[envelope.offset] = value_digest
        return self._replays.arrive(envelope)

    def end(self) -> AuditedUnit:
        replay = self._replays.best()
        is_waiting = self._replays.is_heard_of(replay)
        waiting = len(replay.unit.stash) if is_waiting else 0
        if self._is_as_it_has_to_be(replay):
            return AuditedUnit([], waiting, replay, is_waiting)
        emissions = replay.emissions()
        notified = [each for each in emissions if isinstance(each.made, ObservedNotification)]
        dead_lettered = [self._expected(each) for each in emissions if isinstance(each.made, DeadLetter)]
        missing = [each for each in notified if self.output.find(_id(each)) is None]
        findings = [*self._missing(missing), *self._orphans(notified), *self._doubled()]
        if not self.output.has_possible_duplicates:
            findings += self._disorder(notified)
        findings += [found for each in notified for found in self._differences(each)]
        findings += dead_letter_findings(self._unit, self._partition, dead_lettered, self.output.dead_letters, self.settled)
        return AuditedUnit(findings, waiting + sum(each.trigger >= self.settled for each in missing), replay, is_waiting)

    def _is_as_it_has_to_be(self, replay: Replay) -> bool:
        """Return whether all output is required, once each, in order and unchanged; nearly always true."""
        output = self.output
        count = len(output.notifications)
        return replay.explained == count == output.count and not output.dead_letters and not output.has_possible_duplicates

    def _expected(self, emission: Emission) -> ExpectedDeadLetter:
        made = emission.made
        assert isinstance(made, DeadLetter)
        return ExpectedDeadLetter(emission.offset, emission.trigger, made.reason, made.error, self._envelopes[emission.offset])

    def _missing(self, missing: list[Emission]) -> Iterator[Finding]:
        for each in missing:
            if each.trigger < self.settled:
                yield self._found(Deviation.LOST, each.offset, f"{_named(each)} had to be published and is not there")

    def _orphans(self, notified: list[Emission]) -> Iterator[Finding]:
        """Yield a finding for each notification that no arrival explains."""
        expected = {_id(each) for each in notified}
        for seen in self.output.counted():
            if seen.notification_id in expected:
                continue
            if seen.offset in self._envelopes:
                what = f"{seen.named} was published, but its record requires no notification, or not yet"
                yield self._found(Deviation.UNEXPECTED, seen.offset, what)
            else:
                what = f"{seen.named} was published, but no record of this unit is at its source position"
                yield self._found(Deviation.ORPHAN, seen.offset, what)

    def _doubled(self) -> Iterator[Finding]:
        counted = {id(each) for each in self.output.counted()}
        for seen in self.output.notifications:
            if id(seen) not in counted and not seen.is_possible_duplicate:
                yield self._found(Deviation.DOUBLED, seen.offset, f"{seen.named} was published more than once")

    def _disorder(self, notified: list[Emission]) -> Iterator[Finding]:
        """Yield a finding for each notification that was published behind one that had to be later."""
        ranks = {_id(each): rank for rank, each in enumerate(notified)}
        highest, before = -1, ""
        for seen in self.output.counted():
            rank = ranks.get(seen.notification_id, highest)
            if rank < highest:
                yield self._found(Deviation.OUT_OF_ORDER, seen.offset, f"{seen.named} was published after {before}")
            elif rank > highest:
                highest, before = rank, seen.named

    def _differences(self, emission: Emission) -> Iterator[Finding]:
        expected, seen = emission.made, self.output.find(_id(emission))
        assert isinstance(expected, ObservedNotification)
        if seen is None or seen.is_possible_duplicate:
            return
        for deviation, what in differences(expected, seen):
            yield self._found(deviation, emission.offset, f"{seen.named} {what}")
        if not self.output.has_possible_duplicates:
            for deviation, what in mark_differences(expected, seen):
                yield self._found(deviation, emission.offset, f"{seen.named} {what}")

    def _found(self, deviation: Deviation, offset: int, what: str) -> Finding:
        return Finding(deviation, self._unit, self._partition, None if offset < 0 else offset, what)


def differences(expected: ObservedNotification, seen: ObservedNotification) -> Iterator[tuple[Deviation, str]]:
    """Yield the differences of position, status, content and headers. Content that cannot be known is not compared."""
    if seen.position != expected.position and expected.position is not None:
        yield Deviation.WRONG_POSITION, f"names the position {_position_text(seen)}, but {_position_text(expected)} caused it"
    if expected.digest == NOT_KNOWN:
        return
    if seen.status != expected.status:
        yield Deviation.WRONG_STATUS, f"has the status {seen.status} instead of {expected.status}"
    elif seen.digest != expected.digest:
        what = "has another key or value than its record" if seen.is_passed else "has other content than the unit's data give"
        yield Deviation.WRONG_CONTENT, what
    if seen.is_ordered and not expected.is_ordered:
        yield Deviation.RELEASED_WITHOUT_ORDER, "says that an operator released it, but no order of the unit did so"
    elif names := _differing_headers(expected, seen):
        yield Deviation.WRONG_HEADERS, f"has other headers: {', '.join(names)}"


def mark_differences(expected: ObservedNotification, seen: ObservedNotification) -> Iterator[tuple[Deviation, str]]:
    if seen.is_late and not expected.is_late:
        yield Deviation.FALSELY_LATE, "is marked late, but no later envelope was handled before it"
    if expected.is_late and not seen.is_late:
        yield Deviation.NOT_MARKED_LATE, "is not marked late, but a later envelope was handled before it"
    if seen.incomplete == expected.incomplete:
        return
    if expected.incomplete is None:
        yield Deviation.FALSELY_INCOMPLETE, f"is marked incomplete ({seen.incomplete}), but nothing was missing"
    else:
        what = f"is marked {'complete' if seen.incomplete is None else seen.incomplete}, but {expected.incomplete} was missing"
        yield Deviation.NOT_MARKED_INCOMPLETE, what


def _differing_headers(expected: ObservedNotification, seen: ObservedNotification) -> list[str]:
    ours, theirs = ({*each.headers, (LOOKUPS_VERSION, each.version)} for each in (expected, seen))
    names = sorted({name for name, _ in ours ^ theirs})
    return names or ([] if expected.headers == seen.headers else ["in another order, or another number of times"])


def _id(emission: Emission) -> str:
    assert isinstance(emission.made, ObservedNotification)
    return emission.made.notification_id


def _named(emission: Emission) -> str:
    assert isinstance(emission.made, ObservedNotification)
    return emission.made.named


def _position_text(seen: ObservedNotification) -> str:
    return "no position" if seen.position is None else str(seen.position)
