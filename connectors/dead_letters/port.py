"""What a transport offers to a person who looks at dead letters and decides on them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from connectors.dead_letters.actions import Action, LetterId
from connectors.dead_letters.stored_dead_letter import StoredDeadLetter
from domain.clock import Instant
from domain.errors import ResequencerError


class Signature(NamedTuple):
    """Who acts, and when, as text."""

    by: str
    at: str


Sign: TypeAlias = Callable[[], Signature]
"""Who acts now."""


class AskedFor(NamedTuple):
    """Of which dead letters anybody wants to hear: set aside at `since` or later, or with one of these `numbers`, else of all.

    A store may leave out others, and what was done with them, where that spares it reading them.
    """

    since: Instant | None = None
    numbers: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What became of one dead letter: where its record stands in the input again, or why it does not."""

    number: str
    position: str | None
    problem: str | None = None


class DeadLettersInUse(ResequencerError):
    """Somebody else requeues or discards at this moment."""

    def __init__(self) -> None:
        super().__init__("another `dead-letters requeue` or `discard` is under way here; try again when it has ended")


class DeadLetterStore(Protocol):
    """The dead letters of a service, which may be running. Used by one person, from one thread.

    Any call may raise TransportUnavailable or TransportRefused. What an order said is done is done; the same order again does
    the rest, once.
    """

    @property
    def where(self) -> str:
        """Where the dead letters were read from, for people."""
        ...

    def letters(self) -> Iterator[StoredDeadLetter]:
        """All of them, in the order in which they were set aside within each of their places, one at a time in memory."""
        ...

    def actions(self) -> Iterator[Action]:
        """What was done with them so far, by everybody, those of one letter in order."""
        ...

    def begin(self) -> Iterator[Outcome]:
        """Before any order. From the first step on nobody else's orders count; what a crash left begun is ended, and told.

        Raises:
            DeadLettersInUse: Somebody else's are under way.
        """
        ...

    def requeue(self, letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        """Put their records back into the input, each once. The caller has decided that they may be."""
        ...

    def discard(self, letters: Sequence[LetterId], because: str) -> None:
        """Note that nothing is to be done about them, all or none."""
        ...

    def close(self) -> None: ...


def last_actions(store: DeadLetterStore) -> dict[LetterId, Action]:
    """The last action of each dead letter with which anything was done."""
    return {action.letter_id: action for action in store.actions()}
