"""The port through which an operator reads, requeues and discards dead letters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from guardian.headers import DELIVERY_ID
from notification_service.connectors.dead_letters.actions import (
    Action,
    Deed,
    Discarded,
    Edit,
    Editing,
    EditProposed,
    EditRejected,
    LetterId,
    Requeued,
    StoredDeadLetter,
)
from notification_service.events.identifiers import shown
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.event import Event, Refusal
from resequencer.record import Record


class Signature(NamedTuple):
    """The person who acts, and the instant, both as text."""

    by: str
    at: str


Sign: TypeAlias = Callable[[], Signature]
"""Return the person who acts and the current instant."""


class AskedFor(NamedTuple):
    """Selects dead letters: those set aside at `since` or later, or those with one of `numbers`; by default all.

    A store may skip other dead letters and their actions where it need not read them. `receiver` is the one to which they could
    not be delivered; None means the dead letters of the service itself, or those of the receiver whose topic `numbers` name.
    """

    since: Instant | None = None
    numbers: tuple[str, ...] = ()
    receiver: str | None = None


class Outcome(NamedTuple):
    """The result for one dead letter: what was `done`, or the problem that prevented it.

    `done` is the state that the letter has now. `position` is that of its record in the input, if it was requeued or edited.
    """

    number: str
    position: str | None
    problem: str | None = None
    done: str = Requeued.state


class DeadLettersInUse(ResequencerError):
    """Another process requeues, edits or discards dead letters at this moment."""

    def __init__(self) -> None:
        super().__init__("another `dead-letters requeue`, `edit` or `discard` is running; try again when it has ended")


class DeadLetterStore(Protocol):
    """The dead letters of a service, which may be running. Used by one operator, from one thread.

    Any call may raise TransportUnavailable or TransportRefused. A reported outcome is durable. The same command again
    does what is missing, each record once.
    """

    @property
    def where(self) -> str:
        """The place from which the dead letters are read, as text for people."""
        ...

    def letters(self) -> Iterator[StoredDeadLetter]:
        """Yield all dead letters, one at a time in memory. Within a file or topic partition they come in the order of storing."""
        ...

    def actions(self) -> Iterator[Action]:
        """Yield the actions taken so far by all operators; those on one dead letter in order."""
        ...

    def begin(self) -> Iterator[Outcome]:
        """Start requeueing or discarding; call it before either. It fences all earlier callers.

        Yields the outcomes of requeues that a crash interrupted and that are completed now, edits with the value given then.

        Raises:
            DeadLettersInUse: Another process requeues, edits or discards now.
        """
        ...

    def requeue(self, letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        """Put the records back into the input, each once; those with an `edit` with its value, and key and headers as they were.

        The dead letters stay stored as they are. The caller has checked that they may be requeued. An edit that the transport's
        limits do not let through is refused with the sizes.
        """
        ...

    def discard(self, letters: Sequence[LetterId], because: str) -> None:
        """Note that nothing will be done about these dead letters, all or none."""
        ...

    def propose(self, letter: LetterId, edit: Edit, *, again: bool, anyway: bool) -> None:
        """Note that this edit is proposed, with its value. Nothing is sent."""
        ...

    def reject(self, letter: LetterId, because: str) -> None:
        """Note that the proposed edit is rejected."""
        ...

    def close(self) -> None: ...


FindUnit: TypeAlias = Callable[[Record], str | None]
"""Return the unit that a record has by the configured format, also if it is no event; None if it names none."""


class NotedActions:
    """The calls of a store that only note actions. `note` makes them durable, all or none.

    `find_unit` names the units of dead letters whose format is not IPF's.
    """

    find_unit: FindUnit | None = None

    def __init__(self, sign: Sign, note: Callable[[Sequence[Action]], None]) -> None:
        self._sign, self._note = sign, note

    def named(self, letter: StoredDeadLetter) -> StoredDeadLetter:
        """Return the dead letter with its unit, if its format names that."""
        if self.find_unit is None:
            return letter
        return msgspec.structs.replace(letter, named_unit=self.find_unit(letter.letter.record) or "")

    def discard(self, letters: Sequence[LetterId], because: str) -> None:
        by, at = self._sign()
        self._note([Discarded(number=number, letter=digest, by=by, at=at, because=because) for number, digest in letters])

    def propose(self, letter: LetterId, edit: Edit, *, again: bool, anyway: bool) -> None:
        (number, digest), (by, at) = letter, self._sign()
        proposal = EditProposed(
            number=number, letter=digest, by=by, at=at, because=edit.because, value=edit.value, again=again, anyway=anyway
        )
        self._note([proposal])

    def reject(self, letter: LetterId, because: str) -> None:
        (number, digest), (by, at) = letter, self._sign()
        self._note([EditRejected(number=number, letter=digest, by=by, at=at, because=because)])


def last_actions(store: DeadLetterStore) -> dict[LetterId, Deed]:
    """Return the last deed on each dead letter that has one; without the values of edits, which would fill the memory."""
    deeds = (action for action in store.actions() if not isinstance(action, EditProposed | EditRejected))
    return {action.letter_id: _without_value(action) for action in deeds}


def last_states(store: DeadLetterStore, now: Instant) -> dict[LetterId, str]:
    """Return the state of each dead letter that has actions."""
    states, proposed = dict[LetterId, str](), dict[LetterId, str]()
    for action in store.actions():
        proposed.pop(action.letter_id, None)
        if isinstance(action, EditProposed):
            proposed |= {action.letter_id: action.state} if action.is_open(now) else {}
        elif not isinstance(action, EditRejected):
            states[action.letter_id] = action.state
    return states | proposed


def _without_value(action: Deed) -> Deed:
    return msgspec.structs.replace(action, value=b"") if isinstance(action, Editing) else action


MAX_AT_ONCE = 500
MAX_BYTES_AT_ONCE = 8 * 1024 * 1024
"""Bounds the sum of the values in a portion. A single value that is longer forms a portion of its own."""


def portions(letters: Iterable[StoredDeadLetter]) -> Iterator[list[StoredDeadLetter]]:
    """Split the letters into portions and keep their order. The letter that reaches one of the two bounds ends its portion."""
    portion, size = list[StoredDeadLetter](), 0
    for each in letters:
        portion.append(each)
        size += len(each.value_to_requeue or b"")
        if len(portion) == MAX_AT_ONCE or size >= MAX_BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def find_flaw(letter: StoredDeadLetter, decode: Callable[[Record], Event | Refusal]) -> str | None:
    """Return why the edited record would be a dead letter again, or that it is of another unit; None without such a flaw.

    Its unit must be one that the dead letter names, by its format or key. A dead letter that names none may be of any unit.
    What handling the envelope would lead to is not tried. A record that could not be delivered to a receiver is not decoded: only
    the receiver knows what it takes.
    """
    if DELIVERY_ID in dict(letter.headers_to_requeue):
        return None
    record = letter.letter.record
    decoded = decode(Record(record.origin, letter.value_to_requeue, record.key, letter.headers_to_requeue))
    if isinstance(decoded, Refusal):
        return f"it would be a dead letter again, {decoded.reason.value}: {decoded.error}"
    key = None if record.key is None else record.key.decode("utf-8", "replace")
    units = (letter.unit, key) if letter.named_unit is None else (letter.named_unit or None,)
    named = dict.fromkeys(each for each in units if each is not None)
    if named and decoded.unit not in named:
        return f"it is of unit {shown(decoded.unit)}, the dead letter of {' or '.join(map(shown, named))}"
    return None
