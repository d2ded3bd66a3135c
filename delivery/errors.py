"""The errors of delivery."""

from collections.abc import Iterable

from domain.errors import ResequencerError, TransientError


class LedgerUnavailable(TransientError):
    """The ledger's database does not answer, or its disk is full. The open transaction was rolled back."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"the delivery ledger {url} is not available: {reason}")


class LedgerRefused(ResequencerError):
    """The ledger cannot be used as it is; the text says why and what to do."""


class JobRefused(ResequencerError):
    """What was asked of a job is not possible; the text says why."""


class IntakeLost(ResequencerError):
    """Another process reads the source of the job now: what this one read is not written."""


class ReceiverUnknown(ResequencerError):
    """No receiver of this name is delivered to straight from a topic. `known` are those that are."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no receiver {name} is delivered to straight from a topic; known are: {', '.join(known) or 'none'}")


class OrderRefused(ResequencerError):
    """An order could not be given, or its owner has refused it; the text says why."""
