"""The aggregate: what statuses, an operator and time make of a group."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from notification_service.aggregation.core import Change, Command, Completion
from notification_service.aggregation.payments.commands import CloseGroup, StatedInstruction, decode_command
from notification_service.aggregation.payments.head import (
    MAX_INSTRUCTIONS,
    NO_PARTY,
    GroupState,
    Head,
    Instruction,
    Member,
    Tally,
    decode_head,
    decode_member,
    encode_head,
    encode_member,
    is_repeat,
    next_member,
    plain_of,
    reports_of,
    units_of,
)
from notification_service.aggregation.payments.original import first_head, valid_numbers, with_original
from notification_service.aggregation.payments.report import TARGET_TYPES, find_problems, is_through, make_report, report_hash
from resequencer.clock import SKEW_MS, Instant
from resequencer.errors import PermanentError, Undecodable

_NOTHING = Tally(0, "0", 0)
_EMPTY = Instruction({}, total="0")


def with_member(
    head: Head, before: Member | None, after: Member, stated: StatedInstruction | None, finals: frozenset[str]
) -> Head:
    """Return the head after one of its members has changed. `before` None: it is new. `stated` is its payment information.

    Only counts are changed. Where nothing that is counted differs, the head is the same.
    """
    if before is not None and is_counted_alike(before, after):
        return head
    statuses = _moved(head.statuses, before, after)
    final = sum([tally.count for status, tally in statuses.items() if status in finals])
    members = head.members + (before is None)
    if head.many_instructions:
        return replace(head, members=members, statuses=statuses, final=final)
    instructions = _moved_instructions(head.instructions, before, after, stated)
    is_many = len(instructions) > MAX_INSTRUCTIONS
    return replace(
        head,
        members=members,
        statuses=statuses,
        final=final,
        instructions={} if is_many else instructions,
        many_instructions=is_many,
    )


def is_counted_alike(one: Member, other: Member) -> bool:
    return one.status == other.status and one.amount == other.amount and one.instruction == other.instruction


def _moved(statuses: Mapping[str, Tally], before: Member | None, after: Member) -> dict[str, Tally]:
    moved = dict(statuses)
    if before is not None:
        _add(moved, before, -1)
    is_known = after.status in moved
    _add(moved, after, 1)
    return moved if is_known else dict(sorted(moved.items()))


def _add(statuses: dict[str, Tally], member: Member, times: int) -> None:
    """Count a member once, or with -1 no more. A status without members leaves the counts."""
    tally = statuses.get(member.status, _NOTHING)
    count = tally.count + times
    if count == 0:
        del statuses[member.status]
    elif member.amount is None:
        statuses[member.status] = Tally(count, tally.total, tally.unknown + times)
    else:
        total = units_of(tally.total) + times * units_of(member.amount)
        statuses[member.status] = Tally(count, plain_of(total), tally.unknown)


def _moved_instructions(
    instructions: Mapping[str, Instruction], before: Member | None, after: Member, stated: StatedInstruction | None
) -> dict[str, Instruction]:
    moved = dict(instructions)
    if before is not None and before.instruction is not None:
        moved[before.instruction] = _counted(moved[before.instruction], before, -1)
    if after.instruction is not None:
        known = moved.get(after.instruction) or _EMPTY
        if stated is not None and _says_more(stated, known):
            said_number, said_sum = valid_numbers(stated)
            number, control_sum = known.OrgnlNbOfTxs or said_number, known.OrgnlCtrlSum or said_sum
            known = replace(known, OrgnlNbOfTxs=number, OrgnlCtrlSum=control_sum)
        moved[after.instruction] = _counted(known, after, 1)
        if after.instruction not in instructions:
            moved = dict(sorted(moved.items()))
    if before is not None and before.instruction is not None and not moved[before.instruction].counts:
        del moved[before.instruction]
    return moved


def _counted(instruction: Instruction, member: Member, times: int) -> Instruction:
    """Return the payment information with a member counted once, or with -1 no more."""
    total, unknown = instruction.total, instruction.unknown
    if member.amount is None:
        unknown += times
    elif total is not None:
        total = plain_of(units_of(total) + times * units_of(member.amount))
    counts = _counts(instruction.counts, member.status, times)
    return Instruction(counts, instruction.OrgnlNbOfTxs, instruction.OrgnlCtrlSum, total, unknown)


def _says_more(stated: StatedInstruction, known: Instruction) -> bool:
    """Whether it has a number that is not known yet. To read the numbers takes longer than to count the member."""
    is_number_new = known.OrgnlNbOfTxs is None and stated.OrgnlNbOfTxs is not None
    return is_number_new or (known.OrgnlCtrlSum is None and stated.OrgnlCtrlSum is not None)


def _counts(counts: Mapping[str, int], status: str, times: int) -> dict[str, int]:
    changed = dict(counts)
    changed[status] = changed.get(status, 0) + times
    if not changed[status]:
        del changed[status]
    return changed if status in counts else dict(sorted(changed.items()))


_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class PaymentsSettings(msgspec.Struct, frozen=True):
    """When a group is complete and how long it may take, in milliseconds.

    A payment is through with one of the `final_statuses`. A group that is not complete `deadline_ms` after its first status is
    reported incomplete. What changes after a report is reported again `amend_after_ms` after the first change. `retention_ms`
    after the last change a reported group ends: its members are forgotten, and `ended_retention_ms` later its head.
    `target_type` is `report` or `report-xml`.
    """

    final_statuses: frozenset[str] = frozenset({"ACCC", "RJCT", "CANC"})
    amend_after_ms: int = _HOUR_MS
    deadline_ms: int = 48 * _HOUR_MS
    retention_ms: int = 7 * _DAY_MS
    ended_retention_ms: int = 90 * _DAY_MS
    target_type: str = "report"


class PaymentsOfMessage:
    """An `Aggregate`: its keys are group ids, its members units of work."""

    def __init__(self, settings: PaymentsSettings) -> None:
        self._settings = settings
        self._encode_report = TARGET_TYPES[settings.target_type]

    def apply(self, head: bytes | None, member: bytes | None, command: Command, now: Instant) -> Change:
        """Return the values after a status or a close. A repeat changes nothing.

        Raises:
            Undecodable: The body is no command, or not one for this member.
            PermanentError: The group that shall be closed is not known, or has ended.
        """
        fact = decode_command(command.body)
        if isinstance(fact, CloseGroup):
            return self._close(head, fact, command, now)
        if fact.original is None:
            return _unchanged(head, member)
        if fact.unit != command.member:
            raise Undecodable(f"the status is of the unit {fact.unit!r:.80}, and the member is {command.member!r:.80}")
        known = first_head(fact, fact.original, now) if head is None else decode_head(head)
        if known.state is GroupState.ENDED:
            return _too_late(known, head, command)
        place = command.origin.partition.number, command.origin.offset
        before = None if member is None else decode_member(member)
        if before is not None and (fact.late or is_repeat(before, *place)):
            return _unchanged(head, member)
        after = next_member(before, fact, *place)
        stated = with_original(known, fact, fact.original)
        counted = with_member(stated, before, after, fact.instruction, self._settings.final_statuses)
        at = max(now, known.last_at)
        progressed = self._progressed(replace(counted, last_at=at), at, is_changed=counted is not known)
        return self._change(progressed, encode_member(after))

    def on_due(self, key: str, head: bytes, now: Instant, counts_from: Instant | None) -> Change:  # noqa: ARG002 - Keys are alike.
        """Return the head after its deadline, after the time in which changes collect, or at the end of its retention.

        A group ends in two steps. From the first on no status is counted any more; the second deletes the members, maybe in
        several transactions, between which commands may be applied.
        """
        known = decode_head(head)
        due_at, at = self._due_at(known, counts_from or 0), max(now, known.last_at)
        if due_at > now or (counts_from is None and not _reports(known)):
            return _due(known, due_at)
        if known.state is GroupState.ENDED:
            if known.is_swept:
                return Change(None)
            return self._change(replace(known, is_swept=True), forgets_members=True)
        if known.state is GroupState.OPEN:
            return self._change(_reported(known, GroupState.INCOMPLETE, at))
        if known.amend_at is not None:
            is_other = report_hash(known) != known.reported
            return self._change(_reported(known, known.state, at) if is_other else replace(known, amend_at=None))
        return self._change(_ended(known, at))

    def dated_back(self, head: bytes, now: Instant) -> Change | None:
        known, latest = decode_head(head), now + SKEW_MS
        ahead = [name for name in ("first_at", "last_at", "ended_at") if (getattr(known, name) or 0) > latest]
        dated = replace(known, **dict.fromkeys(ahead, now))
        amend_after_ms = self._settings.amend_after_ms
        if known.amend_at is not None and known.amend_at > latest + amend_after_ms:
            dated = replace(dated, amend_at=now + amend_after_ms)
        return None if dated == known else self._change(dated)

    def on_value(self, key: str, old: bytes | None, new: bytes | None, now: Instant) -> Sequence[Completion]:
        """Return the report if the head has another number of reports than before."""
        if new is None or reports_of(new) <= reports_of(old):
            return ()
        return (make_report(key, decode_head(new), now, self._encode_report),)

    def _close(self, head: bytes | None, close: CloseGroup, command: Command, now: Instant) -> Change:
        if head is None:
            raise PermanentError(f"the group {command.key} cannot be closed: it is unknown")
        known = decode_head(head)
        if known.state is GroupState.ENDED:
            raise PermanentError(f"the group {command.key} cannot be closed: it has ended")
        if known.state in (GroupState.COMPLETE, GroupState.CLOSED):
            return Change(head, due=known.due_at)
        closed = replace(known, closed_by=close.person, because=close.because)
        return self._change(_reported(closed, GroupState.CLOSED, max(now, known.last_at)))

    def _progressed(self, head: Head, at: Instant, *, is_changed: bool) -> Head:
        """Return the head after a status that counted: complete, or with an instant at which the change is reported."""
        if head.state in (GroupState.OPEN, GroupState.INCOMPLETE) and is_through(head) and not find_problems(head):
            return _reported(head, GroupState.COMPLETE, at)
        if head.state is GroupState.OPEN or head.amend_at is not None or not is_changed:
            return head
        return replace(head, amend_at=at + self._settings.amend_after_ms)

    def _change(self, head: Head, member: bytes | None = None, *, forgets_members: bool = False) -> Change:
        return _due(head, self._due_at(head), member, forgets_members=forgets_members)

    def _due_at(self, head: Head, counts_from: Instant = 0) -> Instant:
        settings = self._settings
        if head.state is GroupState.OPEN:
            return head.first_at + settings.deadline_ms
        if head.state is GroupState.ENDED:
            ended_at = head.last_at if head.ended_at is None else head.ended_at
            return max(ended_at, counts_from) + settings.ended_retention_ms if head.is_swept else ended_at
        retained_until = max(head.last_at, counts_from) + settings.retention_ms
        return retained_until if head.amend_at is None else min(head.amend_at, retained_until)


def _due(head: Head, due_at: Instant, member: bytes | None = None, *, forgets_members: bool = False) -> Change:
    known = head if head.due_at == due_at else replace(head, due_at=due_at)
    return Change(encode_head(known), member, due_at, forgets_members)


def _reports(head: Head) -> bool:
    """Return whether what is due next is a report, and not the end of the group or of its members."""
    return head.state is GroupState.OPEN or (head.state is not GroupState.ENDED and head.amend_at is not None)


def _unchanged(head: bytes | None, member: bytes | None) -> Change:
    return Change(head, member, None if head is None else decode_head(head).due_at)


def _reported(head: Head, state: GroupState, at: Instant) -> Head:
    """Return the head with its next report."""
    head = replace(head, state=state, reports=head.reports + 1, amend_at=None, last_at=at)
    return replace(head, reported=report_hash(head))


def _ended(head: Head, at: Instant) -> Head:
    """Return the head with only what operators see of a group that has ended."""
    return replace(head, state=GroupState.ENDED, ended_at=at, party=NO_PARTY, instructions={}, reported="", due_at=None)


def _too_late(head: Head, encoded: bytes | None, command: Command) -> Change:
    """Count a status that came after the end. Its member is forgotten, so the place of the last one shows a repeat."""
    number, offset = place = command.origin.partition.number, command.origin.offset
    if head.too_late_place is not None and head.too_late_place[0] == number and offset <= head.too_late_place[1]:
        return Change(encoded, due=head.due_at)
    return Change(encode_head(replace(head, too_late=head.too_late + 1, too_late_place=place)), due=head.due_at)
