"""Which ends of jobs are published next, and with which numbers."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from notification_service.delivery.core.jobs import JobEvent

LARGEST_NUMBER = 2**63 - 1
"""The range of the databases."""


class PublishedMark(msgspec.Struct, frozen=True):
    """How far a service has published. It may be behind what it has published, by what a crash or a restore has taken.

    `done` is the ledger's number of the last end that was published, and `number` that of its event. What was published with a
    number above `compared` is compared with what shall be.
    """

    done: int = 0
    number: int = 0
    compared: int = 0


class EventLog(Protocol):
    """The ends of the jobs of one service, in its ledger."""

    @property
    def ledger(self) -> str:
        """What identifies the ledger whose events they are."""
        ...

    @property
    def service(self) -> str:
        """Whose jobs they are: each service publishes the ends of its own, with numbers of its own."""
        ...

    def find(self) -> PublishedMark: ...

    def note(self, mark: PublishedMark) -> None: ...

    def after(self, done: int, limit: int) -> Sequence[tuple[int, JobEvent]]:
        """Return the ends behind this one, at most so many, each with its number in the ledger."""
        ...

    def ended(self, events: Sequence[JobEvent]) -> set[tuple[str, int]]:
        """Return which of these runs have ended in the ledger, or are so old that it may have forgotten them: job and run."""
        ...


class NextEvents(msgspec.Struct, frozen=True):
    """What to publish, and the mark to note when it is."""

    events: tuple[JobEvent, ...]
    mark: PublishedMark


def next_events(
    log: EventLog, mark: PublishedMark, waiting: Sequence[tuple[int, JobEvent]], published: Iterable[JobEvent], number: int = 0
) -> NextEvents:
    """Number what of `waiting` was not published yet. `published` is what was with a number above `mark.compared`.

    An end is known by job, run and counts, not by its number: a ledger that was restored counts from an earlier number on. What
    was published stays, and its numbers are not used again. `number` is one that was used, as far as is known beside the events.
    """
    seen = [each for each in published if is_of(each, log)]
    known = {_key(each) for each in seen}
    ours = {_key(each) for _, each in waiting}
    # Those that name no service are of a version before; another service of then may have written them.
    used = [each.number for each in seen if each.service or _key(each) in ours]
    number = max([number, mark.number, *used])
    events = []
    for _, each in waiting:
        if _key(each) in known:
            continue
        number += 1
        events.append(msgspec.structs.replace(each, number=number, ledger=log.ledger, service=log.service))
    done = waiting[-1][0] if waiting else mark.done
    # A run that was published, and has not ended in the ledger, will end once more, after a restore.
    ended = log.ended(seen)
    compared = number if all((each.job, each.run) in ended for each in seen) else mark.compared
    return NextEvents(tuple(events), PublishedMark(done, number, compared))


def find_event(line: bytes) -> JobEvent | None:
    """Return the event; None if the line is none that a ledger can have written."""
    try:
        found = msgspec.json.decode(line, type=JobEvent)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if 0 < found.number <= LARGEST_NUMBER else None


def is_of(event: JobEvent, log: EventLog) -> bool:
    """Return whether the event may be of the service that the log is of."""
    return event.ledger == log.ledger and event.service in ("", log.service)


def _key(event: JobEvent) -> tuple[object, ...]:
    counts = event.expected, event.processed, event.rejected, event.failed, event.cancelled
    return event.job, event.receiver, event.state, event.run, counts
