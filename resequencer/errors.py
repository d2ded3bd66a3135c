"""The families of errors. The family determines the reaction to an error, the class its content."""

from typing import ClassVar

from resequencer.dead_letter import DeadLetterReason
from resequencer.printable import printable

LONGEST_WORDS = 1_000
"""The longest text of an error, in characters, because it may contain any data."""


_LONGEST_NAME = 64
"""The longest name of a server, in characters. It is stored with each unit that waits for the server."""


class ResequencerError(Exception):
    """The base class of all errors that this project raises on purpose."""


class TransientError(ResequencerError):
    """The same call may succeed later. A target-type callable raises it to be called again."""


class DependencyUnavailable(TransientError):
    """A server that a handler calls does not answer. A target-type callable raises it with the server's name.

    The unit waits for the server, however long that takes, and no attempt is counted. Operators see `name`.
    """

    def __init__(self, name: str) -> None:
        shown = printable(str(name)) or "unnamed"
        self.name = shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"
        super().__init__(f"{self.name} unavailable")


class PermanentError(ResequencerError):
    """The same call can never succeed: the record becomes a dead letter with this `reason`."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.HANDLER_FAILED


class Undecodable(PermanentError):
    """The bytes of a record are not what they should be; the text says why."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.UNDECODABLE


class TooManyObjects(PermanentError):
    """There are more objects of one kind than a unit may have."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.TOO_MANY_OBJECTS


class TooLarge(PermanentError):
    """The output of an envelope, or the data of a unit, exceeds its limit."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.TOO_LARGE


class EndedItsWorker(PermanentError):
    """Workers crashed or hung while they handled the envelope: it becomes a dead letter without another attempt."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.ENDED_ITS_WORKER


class DeadLetterOrdered(PermanentError):
    """An operator ordered that the envelope becomes a dead letter."""

    reason: ClassVar[DeadLetterReason] = DeadLetterReason.ORDERED


class OwnershipLost(ResequencerError):
    """A newer owner opened the partition. Decisions of this worker for the partition are void."""


def words_of(error: BaseException) -> str:
    """Return an error's type and the beginning of its text. Foreign code may raise an error whose text cannot be read."""
    name = type(error).__name__
    try:
        text = str(error)
        return f"{name}: {text}"[:LONGEST_WORDS] if text else name
    except Exception as again:  # noqa: BLE001 - Foreign code makes the text.
        return f"{name} (its text cannot be read: {type(again).__name__})"


def our_mistake(error: BaseException) -> str:
    """Return the error of a dead letter for an unexpected failure of the service's own code. The record may be valid."""
    text = printable(words_of(error))
    return f"{text}; the service failed on it: report this with its log, and requeue the record once the service is fixed"


class Withheld(ResequencerError):
    """A login, a right or a topic is missing. A running service waits until an operator has provided it."""


class ConfigurationError(ResequencerError):
    """The configuration is refused, and the service does not start.

    `path` is the full key (or file). `problem` has the value and the remedy. `place` is the `file:line` of the key, if a file has
    it. The text is one line.
    """

    def __init__(self, path: str, problem: str, place: str | None = None) -> None:
        super().__init__(printable(f"{path}: {problem}{f' ({place})' if place else ''}"))
        self.path = path
        self.problem = problem
        self.place = place
