"""The dead letters of one unit, as far as they can be read in a bounded time."""

from collections.abc import Callable
from contextlib import closing
from time import monotonic

from notification_service.connectors.dead_letters.actions import NEW, Deed, LetterId
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign, Signature, last_actions
from notification_service.connectors.dead_letters.stored_dead_letter import StoredDeadLetter
from notification_service.console.units.story import DeadLetters, UnitDeadLetter
from resequencer.clock import Instant, instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import counted, printable

_MOST = 100

OpenStore = Callable[[AskedFor, Sign], DeadLetterStore]


def find_dead_letters(open_store: OpenStore, unit: str, since: Instant | None, most_seconds: float) -> DeadLetters:
    """Return the unit's dead letters from `since` on (None: all), read for so long at most.

    What a store raises is told in the result.
    """
    began = monotonic()
    span = "all dead letters" if since is None else f"the dead letters since {instant_text(since)}"
    found: list[StoredDeadLetter] = []
    looked_at = 0
    try:
        with closing(open_store(AskedFor(since), _nobody)) as store:
            for stored in store.letters():
                looked_at += 1
                if stored.unit == unit and (since is None or stored.letter.dead_at >= since):
                    found.append(stored)
                if len(found) >= _MOST or monotonic() - began > most_seconds:
                    return _told(found, {}, f"the first {counted(looked_at, 'dead letter')} of {span}; there may be more")
            actions = last_actions(store) if found else {}
    except ResequencerError as error:
        return _told(found, {}, f"not all could be read: {printable(str(error))}")
    return DeadLetters(_letters(found, actions), since is None, f"{span} ({looked_at:,} read)")


def _told(found: list[StoredDeadLetter], actions: dict[LetterId, Deed], searched: str) -> DeadLetters:
    return DeadLetters(_letters(found, actions), is_complete=False, searched=searched)


def _letters(found: list[StoredDeadLetter], actions: dict[LetterId, Deed]) -> tuple[UnitDeadLetter, ...]:
    return tuple(_letter(each, actions.get(each.letter_id)) for each in found)


def _letter(stored: StoredDeadLetter, action: Deed | None) -> UnitDeadLetter:
    letter = stored.letter
    state = action.state if action else NEW
    at = instant_text(letter.dead_at)
    return UnitDeadLetter(stored.number, at, letter.reason.value, letter.error, str(letter.record.origin), state)


def _nobody() -> Signature:
    raise AssertionError("reading signs nothing")
