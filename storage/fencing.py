"""Who may commit what: the compare-and-set of the exactly-once protocol, as far as it is the same in every storage."""

from typing import NamedTuple

from msgspec.structs import replace

from domain.errors import OwnershipLost
from storage.port import Commit, Header

REMEMBERED_TOKENS = 64


class LastCommit(NamedTuple):
    """The last commit as it is stored now. `number` 0 and no `attempt`: nothing was committed under `token` yet."""

    token: str
    number: int
    attempt: str | None


def succeeded(header: Header | None, token: str) -> Header:
    """The header under a new owner: nothing committed yet, the old token in the history, everything else inherited.

    The history is bounded. Its latest half is kept whatever it holds; of what is older, tokens under which nothing was
    committed go first, so that a worker that dies after every start does not push out the commit that was last published.
    """
    if header is None:
        return Header(token=token, commit=0)
    history = (*header.history, (header.token, header.commit))
    half = REMEMBERED_TOKENS // 2
    older = tuple(entry for entry in history[:-half] if entry[1] > 0)
    return replace(header, token=token, commit=0, history=older[-half:] + history[-half:])


def advanced(header: Header, commit: Commit) -> Header:
    """The header after this commit."""
    return replace(
        header,
        commit=commit.number,
        next_offset=commit.next_offset,
        highest_number=commit.highest_number,
        heal_offset=commit.heal_offset,
        source=commit.source,
        caught_up_ms=commit.caught_up_ms,
    )


def check_owner(stored: LastCommit, header: Header) -> None:
    """See that the partition stands where its owner believes it does.

    Raises:
        OwnershipLost: It was opened by another owner, or its header moved.
    """
    if (stored.token, stored.number) != (header.token, header.commit):
        raise OwnershipLost(f"we are at {header.token}/{header.commit}, the storage is at {stored.token}/{stored.number}")


def is_done(stored: LastCommit, header: Header, commit: Commit) -> bool:
    """Whether this very commit is stored already; False if it is the next one.

    Raises:
        OwnershipLost: It is neither: late, another owner's, or another decision under a number that is taken.
    """
    ours = stored.token == header.token
    if ours and (stored.number, stored.attempt) == (commit.number, commit.attempt):
        return True
    if ours and stored.number == commit.number - 1:
        return False
    raise OwnershipLost(f"commit {header.token}/{commit.number} meets a storage at {stored.token}/{stored.number}")
