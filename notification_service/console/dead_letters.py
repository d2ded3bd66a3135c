"""Dead letters as people ask for them, with what has been done about each and the errors that a person may see.

The text of an error that a handler raises is not ours, and may quote the payment. Its type may be seen, if it is known to be one.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from heapq import heappop, heappush
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException

from notification_service.connectors.dead_letters.actions import (
    NEW,
    Action,
    EditProposed,
    StoredDeadLetter,
    find_proposal,
    state_after,
)
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Outcome, Sign, Signature, last_states
from notification_service.console.access.identity import Identity, Role
from notification_service.console.sources import Sources
from notification_service.console.unit_story import UnitStory
from notification_service.delivery.errors import ReceiverUnknown
from resequencer.clock import Instant, instant_text
from resequencer.dead_letter import DeadLetterReason

MAX_SHOWN = 500
"""How many dead letters one answer lists: the last ones. Filters find the others."""


MAX_DECIDED = 50_000
"""How many dead letters one decision is for, at most: it bounds the memory and the answer."""


class TooManyMatch(HTTPException):
    """A filter matches more dead letters than one decision may be for."""

    def __init__(self) -> None:
        other = "choose fewer by reason or unit, or use `resequencer dead-letters requeue --all` on the machine"
        super().__init__(HTTPStatus.CONFLICT, f"more than {MAX_DECIDED:,} match, too many for one decision: {other}")


class Filter(NamedTuple):
    """What a dead letter must be. None asks for nothing. `state` is `new`, or that of the last action.

    `receiver` is the one to which it could not be delivered straight from a topic; None means the service's own dead letters.
    """

    reason: str | None = None
    unit: str | None = None
    state: str | None = None
    receiver: str | None = None

    def matches(self, stored: StoredDeadLetter, state: str) -> bool:
        return (
            (self.reason is None or stored.letter.reason.value == self.reason)
            and (self.state is None or state == self.state)
            and (self.unit is None or stored.unit == self.unit)
        )

    @property
    def given(self) -> dict[str, str]:
        """The parts that ask for something, as parameters of a URL."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Row(NamedTuple):
    """One dead letter in a list."""

    number: str
    state: str
    reason: str
    unit: str | None
    position: str
    dead_at: int
    error: str


class DeadLetterList(NamedTuple):
    """Rows that match, the newest first, how many match, and all by state and by reason (of new ones)."""

    rows: tuple[Row, ...]
    matching: int
    by_state: Mapping[str, int]
    new_by_reason: Mapping[str, int]
    where: str


class OneDeadLetter(NamedTuple):
    """A dead letter with the actions on it, the oldest first, as of `now`."""

    stored: StoredDeadLetter
    history: tuple[Action, ...]
    now: Instant

    @property
    def state(self) -> str:
        return state_after(self.history, self.now)

    @property
    def proposal(self) -> EditProposed | None:
        """The edit that waits for a second person."""
        return find_proposal(self.history, self.now)


def open_dead_letters_for(
    sources: Sources, identity: Identity, *numbers: str, receiver: str | None = None
) -> closing[DeadLetterStore]:
    """Open the store for one request of this user; the caller closes it. With `numbers` only these need to be found."""
    if receiver not in (None, *sources.direct_receivers):
        raise HTTPException(HTTPStatus.NOT_FOUND, str(ReceiverUnknown(receiver or "", sources.direct_receivers)))
    return closing(sources.open_dead_letters(AskedFor(numbers=numbers, receiver=receiver), _sign(sources, identity)))


def list_dead_letters(
    store: DeadLetterStore, wanted: Filter, now: Instant, numbers: Container[str] | None = None, limit: int = MAX_SHOWN
) -> DeadLetterList:
    """Read all dead letters, one at a time in memory; return the newest `limit` that match. With `numbers` only these match."""
    newest: list[tuple[Instant, int, Row]] = []  # A heap: a store gives one partition after the other.
    by_state, by_reason = Counter[str](), Counter[str]()
    matching = 0
    for stored, state in _with_states(store, now):
        by_state[state] += 1
        if state == NEW:
            by_reason[stored.letter.reason.value] += 1
        if wanted.matches(stored, state) and (numbers is None or stored.number in numbers):
            matching += 1
            heappush(newest, (stored.letter.dead_at, matching, _row(stored, state)))
            if len(newest) > limit:
                heappop(newest)
    rows = tuple(row for *_, row in sorted(newest, reverse=True))
    return DeadLetterList(rows, matching, by_state, by_reason, store.where)


def all_rows(store: DeadLetterStore, wanted: Filter, now: Instant) -> Iterator[Row]:
    """Yield all rows that match, the oldest first."""
    return (_row(stored, state) for stored, state in _with_states(store, now) if wanted.matches(stored, state))


def matching_numbers(store: DeadLetterStore, wanted: Filter, now: Instant) -> list[str]:
    """Return the numbers of all dead letters that match, in the order in which they were stored.

    Raises:
        TooManyMatch: There are more than can be decided at once.
    """
    numbers = dict[str, None]()
    for stored, state in _with_states(store, now):
        if wanted.matches(stored, state):
            numbers[stored.number] = None
        if len(numbers) > MAX_DECIDED:
            raise TooManyMatch
    return list(numbers)


def find_dead_letter(store: DeadLetterStore, number: str, now: Instant) -> OneDeadLetter | None:
    stored = next((each for each in store.letters() if each.number == number), None)
    if stored is None:
        return None
    return OneDeadLetter(stored, tuple(each for each in store.actions() if each.letter_id == stored.letter_id), now)


def _with_states(store: DeadLetterStore, now: Instant) -> Iterator[tuple[StoredDeadLetter, str]]:
    states = last_states(store, now)
    for stored in store.letters():
        yield stored, states.get(stored.letter_id, NEW)


def _row(stored: StoredDeadLetter, state: str) -> Row:
    dead_letter = stored.letter
    origin, reason = str(dead_letter.record.origin), dead_letter.reason.value
    return Row(stored.number, state, reason, stored.unit, origin, dead_letter.dead_at, dead_letter.error)


def short_number(number: str) -> str:
    """Return the number without the name of its topic: `3#64` for `EVENTS-3#64`."""
    return re.sub(r"^.*-(?=\d+#)", "", number)


def _sign(sources: Sources, identity: Identity) -> Sign:
    return lambda: Signature(identity.name, instant_text(sources.clock.now()))


_RAISED = re.compile(r"^(?:(?:handler )?[\w.:-]{1,200} raised|strategy [\w.:-]{1,200} failed:) ([A-Za-z_]{1,64})\b")
_TYPE = re.compile(r"^([A-Za-z_]{0,60}(?:Error|Exception|Unavailable|Timeout))\b")
_ANSWER = re.compile(r"(?:HTTP -?\d+|[A-Za-z]*ProtocolError)(?=:)")
"""How `notification_service.delivery.core.answers.Answer` writes an answer that has a body, whatever the status; and how the
client begins when it quotes what is no answer of HTTP, such as an illegal status line."""
_OF_AN_ANSWER = frozenset(
    {
        DeadLetterReason.REJECTED.value,
        DeadLetterReason.UNEXPECTED_ANSWER.value,
        DeadLetterReason.ATTEMPTS_EXHAUSTED.value,
        DeadLetterReason.SKIPPED.value,
    }
)
"""Dead letters of these reasons quote what a receiver answered."""
_OUR_MISTAKE = "; the service failed on it"
MASKED = "its text may quote the payment: seeing it needs the role payments"


def error_for(identity: Identity, reason: str, error: str) -> str:
    """Return the error of a dead letter, as far as this person may see it."""
    if reason in _OF_AN_ANSWER:
        return answer_for(identity, error)
    is_foreign = reason == DeadLetterReason.HANDLER_FAILED.value or _OUR_MISTAKE in error
    return _masked(error) if is_foreign and not identity.may(Role.PAYMENTS) else error


def answer_for(identity: Identity, error: str) -> str:
    """Return what a receiver answered, as far as this person may see it: its status, and the text of our own errors."""
    found = _ANSWER.search(error)
    return error if found is None or identity.may(Role.PAYMENTS) else f"{error[: found.end()]} ({MASKED})"


def list_for(identity: Identity, found: DeadLetterList) -> DeadLetterList:
    """Return the list with the errors that this person may see."""
    return found._replace(rows=tuple(row._replace(error=error_for(identity, row.reason, row.error)) for row in found.rows))


def story_for_person(identity: Identity, story: UnitStory) -> UnitStory:
    """Return the story with the errors that this person may see."""
    if identity.may(Role.PAYMENTS):
        return story
    found = tuple(
        msgspec.structs.replace(each, error=error_for(identity, each.reason, each.error)) for each in story.dead_letters.found
    )
    masked = msgspec.structs.replace(story, dead_letters=msgspec.structs.replace(story.dead_letters, found=found))
    if story.state is None:
        return masked
    attempts, stash = story.state.attempts, story.state.stash
    if attempts is not None and attempts.why is not None:
        attempts = msgspec.structs.replace(attempts, why=_masked(attempts.why))
    stash = tuple(
        each if each.defect is None else msgspec.structs.replace(each, defect=_defect(identity, each.defect)) for each in stash
    )
    return msgspec.structs.replace(masked, state=msgspec.structs.replace(story.state, attempts=attempts, stash=stash))


def _defect(identity: Identity, defect: str) -> str:
    reason, separator, error = defect.partition(": ")
    return f"{reason}{separator}{error_for(identity, reason, error)}"


def _masked(error: str) -> str:
    found = _RAISED.match(error) or _TYPE.match(error)
    known = found.group(1) if found else "an error"
    ours = ", a mistake of the service: report it with its log" if _OUR_MISTAKE in error else ""
    return f"{known}{ours} ({MASKED})"


class ListedDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter. `state` is `new`, or that of the last action; `position` is the record's in the input."""

    number: str
    state: str
    reason: str
    unit: str | None
    position: str
    at: str
    error: str


class DeadLettersAnswer(msgspec.Struct, frozen=True):
    """The last dead letters that match, the newest first; how many match; and all by state, and new ones by reason."""

    dead_letters: tuple[ListedDeadLetter, ...]
    matching: int
    by_state: dict[str, int]
    new_by_reason: dict[str, int]
    where: str


class Done(msgspec.Struct, frozen=True):
    """An action on a dead letter: the state that it led to, by whom, when and why, and the position of a requeued record."""

    state: str
    by: str
    at: str
    because: str | None
    position: str | None


class ProposedEdit(msgspec.Struct, frozen=True):
    """An edit that waits for a second person, without its value, which is payment data."""

    by: str
    at: str
    because: str
    value_bytes: int
    sha256: str
    anyway: bool


class DeadLetterAnswer(ListedDeadLetter, frozen=True):
    """A dead letter without its value, which is payment data. `history` has the oldest action first.

    `value_bytes` is the length of the value that is stored, `original_bytes` that of the whole one; they differ if it was cut.
    """

    value_bytes: int
    original_bytes: int
    sha256: str
    history: tuple[Done, ...]
    proposal: ProposedEdit | None


class OutcomeAnswer(msgspec.Struct, frozen=True):
    """What became of one dead letter: `done` is its state now, null if a problem prevented it."""

    number: str
    done: str | None
    position: str | None
    problem: str | None


class OutcomesAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcomes by dead letter, also of interrupted requeues that were completed. With problems the status is 409."""

    outcomes: tuple[OutcomeAnswer, ...]
    error: str | None = None


def answer_about(identity: Identity, found: OneDeadLetter) -> DeadLetterAnswer:
    dead_letter, record = found.stored.letter, found.stored.letter.record
    return DeadLetterAnswer(
        found.stored.number,
        found.state,
        dead_letter.reason.value,
        found.stored.unit,
        str(record.origin),
        instant_text(dead_letter.dead_at),
        error_for(identity, dead_letter.reason.value, dead_letter.error),
        len(record.content),
        record.cut.length if record.cut else len(record.content),
        found.stored.sha256,
        tuple(map(_done, found.history)),
        _proposed(found.proposal),
    )


def outcome_answer(outcome: Outcome) -> OutcomeAnswer:
    done = None if outcome.problem else outcome.done
    return OutcomeAnswer(outcome.number, done, outcome.position, outcome.problem)


def listed_answer(row: Row) -> ListedDeadLetter:
    return ListedDeadLetter(row.number, row.state, row.reason, row.unit, row.position, instant_text(row.dead_at), row.error)


def _done(action: Action) -> Done:
    because, position = getattr(action, "because", None), getattr(action, "position", None)
    return Done(action.state, action.by, action.at, because, position)


def _proposed(proposal: EditProposed | None) -> ProposedEdit | None:
    if proposal is None:
        return None
    return ProposedEdit(proposal.by, proposal.at, proposal.because, len(proposal.value), proposal.sha256, proposal.anyway)
