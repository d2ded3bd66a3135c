"""Taking a partition over: where to read on, what is still to leave, and whether the storage has forgotten. Pure.

The steps are those of docs/decisions/0004-exactly-once.md.
"""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec.structs import replace

from connectors.port import Position
from guardian.done_offsets import DoneOffsets, decode
from storage.port import Header, Pending

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What a database takes too."""


class Metadata(msgspec.Struct, frozen=True, array_like=True):
    """What a position says about the storage commit it stands on: its token and number, and the highest number published.

    `done` tells what is done beyond the position, where the source is the store (guardian/done_offsets.py), and `position`
    beyond which one; None where nothing is, or an earlier version wrote it.
    """

    token: str
    commit: _Count
    published: _Count
    done: str = ""
    position: _Count | None = None

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


class Takeover(msgspec.Struct, frozen=True):
    """How to go on with a partition.

    `offset` is where to read on, `highest_number` what numbering continues from, `pending` what must still leave.
    With `must_heal` the storage has forgotten (or the group was reset): whatever a record below `heal_offset` causes may repeat,
    `pending` gets new numbers, and this is committed before anything is published. `has_expired`: there is no position any more,
    which is what brokers do to a group that is away for long, and not what a person does. `is_new`: nothing was ever read.
    From the first to the last of `gone` are offsets that are not done and not there any more, for the log begins behind them.
    What `done` says is done leaves no more.
    """

    offset: int
    highest_number: int
    heal_offset: int
    pending: tuple[Pending, ...] = ()
    is_new: bool = False
    must_heal: bool = False
    has_expired: bool = False
    gone: range = range(0)
    done: DoneOffsets | None = None


def plan_takeover(
    header: Header, pending: Sequence[Pending], position: Position | None, log: range, *, is_durable: bool
) -> Takeover:
    """Compare what the storage says with what was published; `log` runs from the first offset there is to its end.

    A storage that is not durable forgets with its process, by design: its partition goes on from the position, and nothing
    is healed.
    """
    plan = _plan(header, pending, position, log, is_durable=is_durable)
    if plan.offset >= log.start:
        return plan
    undone = (plan.done or DoneOffsets(plan.offset)).undone_before(log.start)
    return replace(plan, offset=log.start, gone=range(undone[0].start, undone[-1].stop) if undone else range(0))


def _plan(header: Header, pending: Sequence[Pending], position: Position | None, log: range, *, is_durable: bool) -> Takeover:
    metadata = find_metadata(position.metadata) if position is not None else None
    beyond = position.beyond if position is not None else frozenset[int]()
    published = metadata.published if metadata is not None else 0
    highest = max(header.highest_number, published, *beyond, 0)
    left = tuple(each for each in pending if each.number > published and each.number not in beyond)
    if position is None and header.is_empty:
        return Takeover(log.start, highest, 0, is_new=True)
    if position is not None and metadata is not None and _is_known(metadata, header, beyond):
        offset = header.next_offset if header.next_offset is not None else position.offset
        return Takeover(offset, highest, header.heal_offset, left)
    if not is_durable:
        done = decode(position.offset, metadata.done) if position is not None and metadata is not None else None
        return Takeover(position.offset if position else log.start, highest, 0, done=done)
    # What left beyond its position was caused by records beyond it too: nobody knows by which.
    reached = position.offset if position is not None and metadata is not None and not beyond else log.stop
    heal_offset = max(header.heal_offset, reached)
    offset = header.next_offset if header.next_offset is not None else log.start
    return Takeover(offset, highest, heal_offset, left, must_heal=True, has_expired=position is None)


def find_metadata(text: str) -> Metadata | None:
    """Our metadata, or None for what another program wrote."""
    try:
        return msgspec.json.decode(text, type=Metadata)
    except (msgspec.DecodeError, RecursionError):
        return None


def last_commit(header: Header) -> tuple[str, int]:
    """The token and number of the commit that the storage stands on: of an earlier owner's where the present one made none.

    A position names this one, for the history keeps tokens under which something was committed longer than the others: a
    worker that dies again and again before its first commit must not be taken for a storage that forgot.
    """
    owners = (*header.history, (header.token, header.commit))
    return next((each for each in reversed(owners) if each[1]), (header.token, 0))


def _is_known(metadata: Metadata, header: Header, beyond: frozenset[int]) -> bool:
    """The storage remembers the commit that the position stands on, or a later one under the same token.

    Commit 0 is the empty storage, from which each descends; one that is empty though something left has forgotten.
    """
    if not metadata.commit:
        return not (header.is_empty and beyond)
    known = dict(header.history) | {header.token: header.commit}
    return metadata.commit <= known.get(metadata.token, -1)
