"""Selects the dead letters that a requeue or discard applies to, and says why it cannot apply to others."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from connectors.dead_letters.actions import Action, Discarded, LetterId, Requeued
from connectors.dead_letters.stored_dead_letter import StoredDeadLetter

WhyNot = Callable[[StoredDeadLetter, Action | None], str | None]
"""Returns why an action is impossible on a dead letter whose last action is the second argument; None if it is possible."""


class Choice(NamedTuple):
    """By number: the ids of dead letters to act on, and the reasons why others are left out."""

    chosen: dict[str, LetterId]
    refused: dict[str, str]


def choose(letters: Iterable[StoredDeadLetter], last: Mapping[LetterId, Action], why_not: WhyNot) -> Choice:
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
    letters: Iterable[StoredDeadLetter], last: Mapping[LetterId, Action], reason: str | None
) -> Iterable[StoredDeadLetter]:
    """Return the dead letters without any action, of this reason; of all reasons if it is None."""
    return (
        stored for stored in letters if stored.letter_id not in last and (reason is None or stored.letter.reason.value == reason)
    )


def why_not_requeue(stored: StoredDeadLetter, action: Action | None) -> str | None:
    cut = stored.letter.record.cut
    if cut:
        return (
            f"only the first {len(stored.letter.record.value)} of its {cut.length} bytes are here, all of them in the input at "
            f"{stored.letter.record.origin}; have its producer send it again, smaller, or raise max-record-bytes"
        )
    return f"{_past(action)}; use --again to requeue it anyway" if isinstance(action, Requeued | Discarded) else None


def why_not_requeue_again(stored: StoredDeadLetter, action: Action | None) -> str | None:  # noqa: ARG001 - whatever was done before.
    return why_not_requeue(stored, None)


def why_not_discard(stored: StoredDeadLetter, action: Action | None) -> str | None:  # noqa: ARG001 - any letter can be discarded.
    """Return why a discard is impossible. An interrupted requeue may be discarded: in this way a person closes it."""
    return _past(action) if isinstance(action, Requeued | Discarded) else None


def _past(action: Requeued | Discarded) -> str:
    what = f"to {action.position}" if isinstance(action, Requeued) else f"because {action.because}"
    return f"it was {action.state} {what} by {action.by} at {action.at}"
