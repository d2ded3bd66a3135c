"""The errors of delivery."""

from collections.abc import Iterable

from resequencer.errors import ResequencerError, TransientError


class LedgerUnavailable(TransientError):
    """The ledger's database does not answer, or its disk is full. The open transaction was rolled back."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the delivery ledger {url} is not available: {reason}")


class LedgerRefused(ResequencerError):
    """The ledger cannot be used as it is; the text says why and what to do."""


class JobRefused(ResequencerError):
    """What was asked of a job is not possible; the text says why."""


class RunDirectoryCopied(ResequencerError):
    """A run directory with the same id is in use at another place."""

    def __init__(self, service: str, home: str, other: str) -> None:
        super().__init__(
            f"the run directory {home} has the id {service}, which the one at {other} uses now: one of them is a copy. Stop this "
            f"service; or delete the file service-id in this directory, so that it gets an id of its own. If the directory was "
            "moved, wait for half a minute after the last process of the other has ended"
        )


class IntakeLost(ResequencerError):
    """Another process reads the source of the job now: what this one read is not written."""


class ReceiverUnknown(ResequencerError):
    """No receiver of this name is delivered to straight from a topic. `known` are those that are."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no receiver {name} is delivered to straight from a topic; known are: {', '.join(known) or 'none'}")


class OrderRefused(ResequencerError):
    """An order could not be given, or its owner has refused it; the text says why."""
