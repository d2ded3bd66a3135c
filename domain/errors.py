"""The four families of errors. What an error calls for is its family; what it says is its class."""

from typing import ClassVar

from domain.dead_letter import DeadLetterReason
from domain.printable import printable

LONGEST_WORDS = 1_000
"""Of an error's text: it may hold whatever the error is about."""


_LONGEST_NAME = 64
"""Of a server, in characters: it is kept with each unit that waits for it."""


class ResequencerError(Exception):
    """Every error that this project raises on purpose."""


class TransientError(ResequencerError):
    """Try the same again: the cause is expected to go away. A target-type callable raises it to be called again."""


class DependencyUnavailable(TransientError):
    """A server that a handler calls does not answer. A target-type callable raises it with the server's name.

    The unit waits for the server, however long that takes: no attempt is counted. `name` is what operators read.
    """

    def __init__(self, name: str) -> None:
        shown = printable(str(name)) or "unnamed"
        self.name = shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"
        super().__init__(f"{self.name} unavailable")


class PermanentError(ResequencerError):
    """Trying again cannot help: the record goes to the dead letters, for this `reason`."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.HANDLER_FAILED


class TooManyObjects(PermanentError):
    """Of one kind: more than a unit may hold."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.TOO_MANY_OBJECTS


class TooLarge(PermanentError):
    """An envelope would let out, or a unit hold, more than it may."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.TOO_LARGE


class EndedItsWorker(PermanentError):
    """Workers died of the envelope or hung on it: it is set aside without another try."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.ENDED_ITS_WORKER


class OwnershipLost(ResequencerError):
    """A newer owner opened the partition; nothing that was decided for it counts any more."""


def words_of(error: BaseException) -> str:
    """Its type and the beginning of its text, for people. Foreign code may raise an error whose text cannot be had."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:LONGEST_WORDS]
    except Exception as again:  # noqa: BLE001 - Its text is made by foreign code.
        return f"{name} (its text cannot be had: {type(again).__name__})"


def our_mistake(error: BaseException) -> str:
    """What a dead letter says where code of ours failed in a way that was not foreseen: the record may be sound."""
    said = printable(words_of(error))
    return f"{said}; the service failed on it: report this with its log, and requeue the record once that is mended"


class Withheld(ResequencerError):
    """A login, a right or a topic is missing: a person can give it while a service that runs waits for it."""


class ConfigurationError(ResequencerError):
    """Refuse to start. `path` is the full key (or file), `problem` names the value and the remedy. The text is one line."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(printable(f"{path}: {problem}"))
        self.path = path
        self.problem = problem
