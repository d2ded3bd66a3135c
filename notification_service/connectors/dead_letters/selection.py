"""Selects the dead letters that a requeue, an edit or a discard applies to, and says why it cannot apply to others."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from notification_service.connectors.dead_letters.actions import Deed, Discarded, Edited, LetterId, Requeued
from notification_service.connectors.dead_letters.stored_dead_letter import Edit, StoredDeadLetter

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
        here = f"only the first {len(record.value)} of its {record.cut.length} bytes are here"
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
