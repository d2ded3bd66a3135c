"""Fencing: the parts of the exactly-once protocol's compare-and-set that are the same in every storage."""

from typing import NamedTuple

from msgspec.structs import replace

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Commit, Header

REMEMBERED_TOKENS = 64


class LastCommit(NamedTuple):
    """The last commit in the storage. `number` 0 and no `attempt`: nothing was committed under `token` yet."""

    token: str
    number: int
    attempt: str | None


def succeeded(header: Header | None, token: str) -> Header:
    """Return the header for a new owner: no commits yet, the old token in the history, everything else inherited.

    The history is bounded. Its latest half keeps every token. Its older half keeps only tokens with commits. So a worker that
    exits after every start does not push out the commit that was last published.
    """
    if header is None:
        return Header(token=token, commit=0)
    history = (*header.history, (header.token, header.commit))
    half = REMEMBERED_TOKENS // 2
    older = tuple(entry for entry in history[:-half] if entry[1] > 0)
    return replace(header, token=token, commit=0, history=older[-half:] + history[-half:])


def advanced(header: Header, commit: Commit) -> Header:
    """Return the header after this commit."""
    return replace(
        header,
        commit=commit.number,
        next_offset=commit.next_offset,
        highest_number=commit.highest_number,
        heal_offset=commit.heal_offset,
        source=commit.source,
        caught_up_ms=commit.caught_up_ms,
        orders=commit.orders,
        source_state=commit.source_state,
    )


def check_owner(stored: LastCommit, header: Header) -> None:
    """Check that the stored commit is the one that the owner knows.

    Raises:
        OwnershipLost: Another owner opened the partition, or its header moved.
    """
    if (stored.token, stored.number) != (header.token, header.commit):
        raise OwnershipLost(f"this worker is at {header.token}/{header.commit}, the storage at {stored.token}/{stored.number}")


def is_done(stored: LastCommit, header: Header, commit: Commit) -> bool:
    """Return True if this commit is stored already, False if it is the next one.

    Raises:
        OwnershipLost: It is neither: it is late, of another owner, or another attempt for a number that is used.
    """
    ours = stored.token == header.token
    if ours and (stored.number, stored.attempt) == (commit.number, commit.attempt):
        return True
    if ours and stored.number == commit.number - 1:
        return False
    raise OwnershipLost(f"commit {header.token}/{commit.number} does not follow the storage's {stored.token}/{stored.number}")
