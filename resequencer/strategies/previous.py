"""PREVIOUS: an event names the one before it, and follows it."""

from hashlib import blake2b

from resequencer.event import Event
from resequencer.strategies.port import Rank, StrategyState

REMEMBERED_LINKS = 256
"""How many ids a unit's state has, at most: 2 304 bytes, written with every change."""

_HASH = 8
_WIDTH = _HASH + 1
"""Bytes per id: those of its hash, then its fate."""

_UNKNOWN, _HANDLED, _GIVEN_UP, _PASSED = range(4)
"""The fate of an id: handled; given up or dead, with nothing behind it handled; or passed by one behind it that was handled."""


class Links(StrategyState, frozen=True, array_like=True, gc=False):
    """`known` has the last ids that were handled, became a dead letter or were given up, packed. Oldest first: an
    id that a handled event names is new again.

    `own_before` and `previous_before` are the fates of the last event's id and of the one before it, before that event was
    counted. `dead_lettered` goes back to them.
    """

    known: bytes = b""
    own_before: int = _UNKNOWN
    previous_before: int = _UNKNOWN

    @property
    def count(self) -> int:
        return len(self.known) // _WIDTH


class Previous:
    """Handles an event once the one that it names was handled; one that names none is the first of its chain.

    What follows one that became a dead letter, or was given up, does not wait for it. If that one comes after all, it is late if
    what follows it was handled.
    """

    name = "PREVIOUS"
    needs_sequence = False
    gathers = False
    state_type = Links

    def initial(self) -> Links:
        return Links()

    def rank(self, envelope: Event) -> Rank:
        return Rank(envelope.previous or "", 0)

    def next_lane(self, envelope: Event) -> str:
        """Return the lane of what follows this event."""
        return envelope.event_id

    def observe(self, state: Links, envelope: Event) -> Links:  # noqa: ARG002 - only handling counts.
        return state

    def accepts(self, state: Links, envelope: Event) -> bool:
        return envelope.previous is None or _fate(state.known, _hash(envelope.previous)) != _UNKNOWN

    def handled(self, state: Links, envelope: Event) -> Links:
        """Count the event, and the one before it as named once more. If that one was not handled, it is given up."""
        known, own = state.known, _hash(envelope.event_id)
        own_before, previous_before = _fate(known, own), _UNKNOWN
        if envelope.previous is not None:
            link = _hash(envelope.previous)
            previous_before = _fate(known, link)
            known = _with(known, link, _HANDLED if previous_before == _HANDLED else _PASSED)
        return Links(_with(known, own, _HANDLED), own_before, previous_before)

    def forced(self, state: Links, envelope: Event) -> Links:
        return self.handled(state, envelope)

    def skip(self, state: Links, envelope: Event) -> Links | None:
        """Return the state after the named one was given up; None if the event does not wait for it."""
        if envelope.previous is None or self.accepts(state, envelope):
            return None
        return Links(_with(state.known, _hash(envelope.previous), _GIVEN_UP))

    def dead_lettered(self, state: Links, envelope: Event) -> Links:
        """Return the state after a dead letter: successors do not wait for it, it may come again, and it was not handled."""
        known = state.known
        if envelope.previous is not None and state.previous_before in (_UNKNOWN, _GIVEN_UP):
            known = _with(known, _hash(envelope.previous), _GIVEN_UP)
        return Links(_with(known, _hash(envelope.event_id), _PASSED if state.own_before == _PASSED else _GIVEN_UP))

    def is_late(self, state: Links, envelope: Event) -> bool:
        return _fate(state.known, _hash(envelope.event_id)) == _PASSED

    def missing(self, state: Links, envelope: Event) -> str:  # noqa: ARG002 - the event names it.
        return "previous" if envelope.previous is None else f"previous:{envelope.previous}"


def _hash(identifier: str) -> bytes:
    """Return the hash of an id. It is stored, so it is the same in every process and version."""
    return blake2b(identifier.encode(), digest_size=_HASH).digest()


def _find(known: bytes, link: bytes) -> int:
    at = known.find(link)
    while at % _WIDTH and at != -1:
        at = known.find(link, at + 1)
    return at


def _fate(known: bytes, link: bytes) -> int:
    at = _find(known, link)
    return _UNKNOWN if at == -1 else known[at + _HASH]


def _with(known: bytes, link: bytes, fate: int) -> bytes:
    """Return the ids with this one as the newest. Beyond `REMEMBERED_LINKS` the oldest are forgotten."""
    at = _find(known, link)
    others = known if at == -1 else known[:at] + known[at + _WIDTH :]
    return (others + link + bytes((fate,)))[-REMEMBERED_LINKS * _WIDTH :]
