"""Counts of a group. They change only by what changes for a member, so that a command that came twice changes nothing."""

from collections.abc import Mapping

from msgspec.structs import replace

from notification_service.aggregation.payments.amounts import plain_of, units_of
from notification_service.aggregation.payments.commands import StatedInstruction
from notification_service.aggregation.payments.head import MOST_INSTRUCTIONS, Head, Instruction, Tally
from notification_service.aggregation.payments.member import Member
from notification_service.aggregation.payments.original import valid_numbers

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
    is_many = len(instructions) > MOST_INSTRUCTIONS
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
