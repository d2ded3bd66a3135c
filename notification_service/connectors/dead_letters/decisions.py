"""What a person decides about dead letters, carried out on a store: requeue, edit, discard. For every program that people use.

Each function begins a store that was opened for this call alone; the caller closes it. It yields an outcome for each dead letter
as soon as it is durable: first those of requeues that a crash interrupted. Only what was yielded is done, so a caller takes all
outcomes. All raise what the store's methods raise. Each action is signed as the store was told when it was opened.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, TypeAlias

from notification_service.connectors.dead_letters.actions import (
    Deed,
    Discarded,
    Edit,
    Edited,
    EditProposed,
    EditRejected,
    LetterId,
    Requeued,
    StoredDeadLetter,
)
from notification_service.connectors.dead_letters.port import MAX_AT_ONCE, DeadLetterStore, Outcome, last_actions
from resequencer.clock import Instant
from resequencer.order import is_same_person

WhyNot = Callable[[StoredDeadLetter, Deed | None], str | None]
"""Returns why an action is impossible on a dead letter whose last action is the second argument; None if it is possible."""


class Choice(NamedTuple):
    """By number: the ids of dead letters to act on, and the reasons why others are left out."""

    chosen: dict[str, LetterId]
    refused: dict[str, str]


def choose(letters: Iterable[StoredDeadLetter], last: Mapping[LetterId, Deed], why_not: WhyNot) -> Choice:
    """Choose among these dead letters, each of which may stand on several lines."""
    choice = Choice({}, {})
    for stored in letters:
        number, other = stored.number, choice.chosen.get(stored.number)
        problem = why_not(stored, last.get(stored.letter_id))
        if problem is None and other in (None, stored.letter_id):
            choice.chosen[number] = stored.letter_id
        else:
            choice.refused[number] = problem or "another dead letter has the same number: move one of the two files elsewhere"
    for number in choice.refused:
        choice.chosen.pop(number, None)
    return choice


def named(letters: Iterable[StoredDeadLetter], numbers: Iterable[str]) -> Iterable[StoredDeadLetter]:
    wanted = frozenset(numbers)
    return (stored for stored in letters if stored.number in wanted)


def new_ones(
    letters: Iterable[StoredDeadLetter], last: Mapping[LetterId, Deed], reason: str | None
) -> Iterable[StoredDeadLetter]:
    """Return the dead letters without any action, of this reason; of all reasons if it is None."""
    return (
        stored for stored in letters if stored.letter_id not in last and (reason is None or stored.letter.reason.value == reason)
    )


def why_not_requeue(stored: StoredDeadLetter, action: Deed | None) -> str | None:
    record = stored.letter.record
    if record.cut:
        here = f"only the first {len(record.content)} of its {record.cut.length} bytes are here"
        remedy = "have its producer send it again, smaller, or give its whole value with `edit`, or raise max-record-bytes"
        return f"{here}, all of them in the input at {record.origin}; {remedy}"
    return f"{_past(action)}; use --again to requeue it anyway" if isinstance(action, Requeued | Discarded) else None


def why_not_requeue_again(stored: StoredDeadLetter, action: Deed | None) -> str | None:  # noqa: ARG001 - whatever was done before.
    return why_not_requeue(stored, None)


def why_not_edit(stored: StoredDeadLetter, action: Deed | None) -> str | None:  # noqa: ARG001 - also a cut letter can be edited.
    return f"{_past(action)}; use --again to edit it anyway" if isinstance(action, Requeued | Discarded) else None


def why_not_this(stored: StoredDeadLetter, edit: Edit) -> str | None:
    """An edit must change the value. Of a cut value the rest is not known here."""
    is_same = stored.letter.record.cut is None and edit.value == stored.letter.record.value
    return "the value is the same as before: `dead-letters requeue` sends it again unchanged" if is_same else None


def why_not_discard(stored: StoredDeadLetter, action: Deed | None) -> str | None:  # noqa: ARG001 - any letter can be discarded.
    """Return why a discard is impossible. An interrupted requeue may be discarded: in this way a person closes it."""
    return _past(action) if isinstance(action, Requeued | Discarded) else None


def _past(action: Requeued | Discarded) -> str:
    what = f" to {action.position}" if isinstance(action, Requeued) else ""
    why = f" because {action.because}" if isinstance(action, Edited | Discarded) else ""
    return f"it was {action.state}{what}{why} by {action.by} at {action.at}"


FindFlaw: TypeAlias = Callable[[StoredDeadLetter], str | None]
"""Return what is still wrong with an edited dead letter; None if nothing is."""


class Approval(NamedTuple):
    """What a second person approves, and when: the proposal of the value with this SHA-256."""

    by: str
    sha256: str
    now: Instant


def requeue_named(store: DeadLetterStore, numbers: Iterable[str], *, again: bool = False) -> Iterator[Outcome]:
    """Requeue the dead letters with these numbers in the order in which they were stored.

    With `again` also those that were requeued, edited or discarded before.
    """
    ended = yield from _begin(store)
    remaining = [number for number in dict.fromkeys(numbers) if number not in ended]
    yield from _requeue(store, _choose(store, remaining, why_not_requeue_again if again else why_not_requeue))


def requeue_new(store: DeadLetterStore, reason: str | None = None) -> Iterator[Outcome]:
    """Requeue all dead letters without actions, of any reason if none is given."""
    yield from _begin(store)
    last = last_actions(store)
    yield from _requeue(store, choose(new_ones(store.letters(), last, reason), last, why_not_requeue))


def edit(store: DeadLetterStore, number: str, edit: Edit, find_flaw: FindFlaw, *, again: bool = False) -> Iterator[Outcome]:
    """Requeue one dead letter with another value. With `again` also if it was requeued, edited or discarded before.

    It is refused if `find_flaw` finds a flaw, or if the value is the letter's own. The same edit once more only completes one
    that a crash interrupted.
    """
    ended = yield from _begin(store)
    if number in ended and (ended[number].position is None or _was_edited(store, number, edit)):
        return

    yield from _requeue(store, _choose(store, [number], _why_not_edited(edit, find_flaw, again=again)), edit)


def propose_edit(
    store: DeadLetterStore, number: str, edit: Edit, find_flaw: FindFlaw, *, again: bool = False, anyway: bool = False
) -> Iterator[Outcome]:
    """Note that a second person has to approve this edit. It is refused as `edit` refuses; an earlier proposal is over.

    `anyway` tells the second person that `find_flaw` let flaws pass.
    """
    yield from _begin(store)
    choice = _choose(store, [number], _why_not_edited(edit, find_flaw, again=again))
    yield from _refusals(choice)
    for each in choice.chosen.values():
        store.propose(each, edit, again=again, anyway=anyway)
        yield Outcome(number, None, done=EditProposed.state)


def approve_edit(store: DeadLetterStore, number: str, approval: Approval, find_flaw: FindFlaw) -> Iterator[Outcome]:
    """Requeue one dead letter with the value that another person proposed. `find_flaw` is not asked if that person said so."""
    yield from _begin(store)
    proposal = _find_proposal(store, number)
    if proposal is None or proposal.sha256 != approval.sha256:
        yield Outcome(number, None, "it has no such proposal any more: look at it again")
    elif not proposal.is_open(approval.now):
        yield Outcome(number, None, f"the proposal has expired, it is of {proposal.at}: propose the edit again")
    elif is_same_person(proposal.by, approval.by):
        yield Outcome(number, None, "another person than the one who proposed it has to approve it")
    else:
        edit = Edit(proposal.value, proposal.because, proposal.by)
        flaw = (lambda _: None) if proposal.anyway else find_flaw
        why_not = _why_not_edited(edit, flaw, again=proposal.again, letter_id=proposal.letter_id)
        yield from _requeue(store, _choose(store, [number], why_not), edit)


def reject_edit(store: DeadLetterStore, number: str, because: str) -> Iterator[Outcome]:
    """Note that the proposed edit is rejected. The person who made it may take it back so."""
    yield from _begin(store)
    proposal = _find_proposal(store, number)
    if proposal is None:
        yield Outcome(number, None, "it has no proposal any more: look at it again")
    else:
        store.reject(proposal.letter_id, because)
        yield Outcome(number, None, done=EditRejected.state)


def discard(store: DeadLetterStore, numbers: Iterable[str], because: str) -> Iterator[Outcome]:
    """Note for the dead letters with these numbers that nothing is to be done, for this reason.

    Hundreds are noted at a time, all or none. If it is interrupted, those that were noted stay so; the same call
    notes those that are missing.
    """
    yield from _begin(store)
    choice = _choose(store, numbers, why_not_discard)
    yield from _refusals(choice)
    chosen = iter(choice.chosen.items())
    while portion := tuple(islice(chosen, MAX_AT_ONCE)):
        store.discard([letter for _, letter in portion], because)
        yield from (Outcome(number, None, done=Discarded.state) for number, _ in portion)


def _why_not_edited(edit: Edit, find_flaw: FindFlaw, *, again: bool, letter_id: LetterId | None = None) -> WhyNot:
    """`letter_id` is that of the only dead letter that is meant; None means any with its number."""

    def why_not(stored: StoredDeadLetter, action: Deed | None) -> str | None:
        if letter_id not in (None, stored.letter_id):
            return "the proposal is for another dead letter of this number"
        problem = None if again else why_not_edit(stored, action)
        return problem or why_not_this(stored, edit) or find_flaw(stored.edited(edit))

    return why_not


def _find_proposal(store: DeadLetterStore, number: str) -> EditProposed | None:
    """Return the open proposal of a dead letter with this number. Of several letters it is the last one's."""
    found: dict[LetterId, EditProposed] = {}
    for each in store.actions():
        if each.number == number:
            found.pop(each.letter_id, None)
            if isinstance(each, EditProposed):
                found[each.letter_id] = each
    return next(reversed(found.values()), None)


def _begin(store: DeadLetterStore) -> Generator[Outcome, None, dict[str, Outcome]]:
    """Yield the outcomes of interrupted requeues; return them by number."""
    ended = dict[str, Outcome]()
    for outcome in store.begin():
        ended[outcome.number] = outcome
        yield outcome
    return ended


def _was_edited(store: DeadLetterStore, number: str, edit: Edit) -> bool:
    actions = last_actions(store).values()
    return any(each.number == number and isinstance(each, Edited) and each.edited_sha256 == edit.sha256 for each in actions)


def _choose(store: DeadLetterStore, numbers: Iterable[str], why_not: WhyNot) -> Choice:
    wanted = list(dict.fromkeys(numbers))
    choice = choose(named(store.letters(), wanted), last_actions(store), why_not)
    unknown = {number: f"no dead letter has this number in {store.where}" for number in wanted if number not in choice.chosen}
    return choice._replace(refused=unknown | choice.refused)


def _requeue(store: DeadLetterStore, choice: Choice, edit: Edit | None = None) -> Iterator[Outcome]:
    yield from _refusals(choice)
    remaining = dict(choice.chosen)
    for outcome in store.requeue(each if edit is None else each.edited(edit) for each in _read(store, choice)):
        yield outcome
        remaining.pop(outcome.number, None)
    yield from (Outcome(number, None, f"it is no longer in {store.where}; put it back there") for number in remaining)


def _read(store: DeadLetterStore, choice: Choice) -> Iterator[StoredDeadLetter]:
    """Yield each chosen letter once, even if it is stored on several lines."""
    ids = dict(choice.chosen)
    for stored in store.letters() if ids else ():
        if ids.get(stored.number) == stored.letter_id:
            del ids[stored.number]
            yield stored


def _refusals(choice: Choice) -> Iterator[Outcome]:
    return (Outcome(number, None, problem) for number, problem in choice.refused.items())
