"""The aggregate: what statuses, an operator and time make of a group."""

from collections.abc import Sequence

from msgspec.structs import replace

from notification_service.aggregation.core.aggregate import Change, Completion
from notification_service.aggregation.core.command import Command
from notification_service.aggregation.payments.commands import CloseGroup, decode_command
from notification_service.aggregation.payments.counting import with_member
from notification_service.aggregation.payments.head import NO_PARTY, GroupState, Head, decode_head, encode_head, reports_of
from notification_service.aggregation.payments.member import decode_member, encode_member, is_repeat, next_member
from notification_service.aggregation.payments.original import first_head, with_original
from notification_service.aggregation.payments.problems import find_problems, is_through
from notification_service.aggregation.payments.report import TARGET_TYPES, make_report, report_hash
from notification_service.aggregation.payments.settings import PaymentsSettings
from resequencer.clock import Instant
from resequencer.errors import PermanentError, Undecodable
from resequencer.steady_clock import SKEW_MS


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
        said = decode_command(command.body)
        if isinstance(said, CloseGroup):
            return self._close(head, said, command, now)
        if said.original is None:
            return _unchanged(head, member)
        if said.unit != command.member:
            raise Undecodable(f"the status is of the unit {said.unit!r:.80}, and the member is {command.member!r:.80}")
        known = first_head(said, said.original, now) if head is None else decode_head(head)
        if known.state is GroupState.ENDED:
            return _too_late(known, head, command)
        place = command.origin.partition.number, command.origin.offset
        before = None if member is None else decode_member(member)
        if before is not None and (said.late or is_repeat(before, *place)):
            return _unchanged(head, member)
        after = next_member(before, said, *place)
        stated = with_original(known, said, said.original)
        counted = with_member(stated, before, after, said.instruction, self._settings.final_statuses)
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
    """Count a status that came after the end. Its member is forgotten, so the place of the last one tells a repeat."""
    number, offset = place = command.origin.partition.number, command.origin.offset
    if head.too_late_place is not None and head.too_late_place[0] == number and offset <= head.too_late_place[1]:
        return Change(encoded, due=head.due_at)
    return Change(encode_head(replace(head, too_late=head.too_late + 1, too_late_place=place)), due=head.due_at)
