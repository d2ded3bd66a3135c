"""One search: whatever an operator has the id of, with what was searched for it, and what cannot be searched.

What has an index is asked first: the storage, the groups, the number of a dead letter, the record at a position. Only if nothing
was found there is more read, each for about two seconds at most: no topic is read as a whole.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from shlex import quote as shell_quoted
from time import monotonic
from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from notification_service.aggregation.payments.group_view import GroupView
from notification_service.connectors.dead_letters.actions import StoredDeadLetter
from notification_service.connectors.dead_letters.port import AskedFor
from notification_service.console.find_unit import (
    DAY_MS,
    NOT_STORED,
    Search,
    Viewing,
    find_story,
    look_in,
    no_signature,
    partitions_of,
    search_dead_letters,
)
from notification_service.console.sources import Sources
from notification_service.console.unit_story import SentBy, UnitsFound
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.events.own_data import opened
from notification_service.payments.payment_data import PaymentData
from notification_service.status.report import State
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import counted, printable
from resequencer.record import Origin, OutputNumber
from resequencer.storage_port import Waits
from resequencer.unit import Unit
from storage.view_port import StorageView

_SECONDS, _ALL_SECONDS = 2.0, 20.0
_MAX_FOUND = 100
_MAX_WAITING = 50_000
_NOTIFICATION_ID = re.compile("[A-Z2-7]{32}")
_AWAY = (State.SOURCE_UNAVAILABLE, State.OUTPUT_UNAVAILABLE)
"""In these states the brokers are not asked: each question would wait for an answer that does not come."""

LONGEST_TEXT = 1_024
NOT_COUNTED = "not searched: the payments of messages are not counted (aggregation.enabled)"


class Hit(msgspec.Struct, frozen=True):
    """Something that was found: `kind` is `unit`, `group`, `dead-letter`, `notification` or `record`, `text` says more of it.

    `page` is where the console shows it, `command` what shows it in a shell.
    """

    kind: str
    id: str
    text: str
    page: str
    command: str


class Searched(msgspec.Struct, frozen=True):
    """For what was searched, and in words what was read; or why it was not searched, and what would make that possible."""

    what: str
    text: str


class FindAnswer(msgspec.Struct, frozen=True):
    """What was found, the surest first. `meaning` says what it can mean that nothing was. With `is_all` nothing was left out.

    `problems` are why the storage could not be searched as a whole.
    """

    text: str
    found: tuple[Hit, ...]
    searched: tuple[Searched, ...]
    meaning: tuple[str, ...]
    is_all: bool
    problems: tuple[str, ...] = ()


class GroupsFound(NamedTuple):
    """The groups with this key or message id. `searched` is as in `Searched`, `meaning` what it can mean that none was found."""

    groups: tuple[GroupView, ...]
    searched: str
    meaning: str = ""


class Reach(NamedTuple):
    """What can be searched, and for whom.

    `note_end_to_end` writes to the audit log that payments are looked for by their EndToEndId, and is called before that is done;
    None for a person who may not.
    """

    sources: Sources
    viewing: Callable[[], Viewing]
    find_groups: Callable[[str], GroupsFound]
    ledger: Ledger | None
    note_end_to_end: Callable[[], None] | None


def find(reach: Reach, text: str, *, is_all: bool = False) -> FindAnswer:
    """Search for a text, which is an id as a whole. What cannot be read is named, and is no error.

    With `is_all` everything is searched, for up to 20 seconds each, also if something was found.

    Raises:
        AuditLogUnavailable: Of `note_end_to_end`.
    """
    finder = _Finder(reach, text, is_all=is_all)
    finder.look_up()
    if is_all or not finder.found:
        finder.read()
    else:
        finder.searched.append(Searched("other places", "not searched, because it was found"))
    return FindAnswer(
        text, tuple(finder.found.values())[:_MAX_FOUND], tuple(finder.searched), finder.meaning, is_all, finder.problems
    )


class _Finder:
    def __init__(self, reach: Reach, text: str, *, is_all: bool) -> None:
        self._reach, self._text, self._is_all = reach, text, is_all
        self._seconds = _ALL_SECONDS if is_all else _SECONDS
        self._since = None if is_all else reach.sources.clock.now() - DAY_MS
        report = reach.sources.find_report()
        self._waits = () if report is None else report.whole.oldest_waits
        self._away = report.state if report is not None and report.state in _AWAY else None
        self.found: dict[tuple[str, str], Hit] = {}
        self.searched: list[Searched] = []
        self.meaning: tuple[str, ...] = ()
        self.problems: tuple[str, ...] = ()

    def look_up(self) -> None:
        """Ask what has an index."""
        self._find_state()
        groups, searched, meaning = self._reach.find_groups(self._text)
        self.meaning = (meaning,) if meaning else ()
        for each in groups:
            total = "?" if each.total is None else f"{each.total:,}"
            text = f"message {each.message_id}: {each.state.value}, {each.final:,} of {total} payments are final"
            self._hit("group", each.key, text)
        self._note("group (message id)", searched)
        self._find_by_number()
        self._find_at_position()

    def read(self) -> None:
        """Read what has no index, as long as it may take."""
        self._find_story()
        self._find_notification()
        self._find_deliveries()
        self._find_dead_letters_of_position()
        self._find_by_end_to_end_id()

    def _find_state(self) -> None:
        sources, search = self._reach.sources, Search(self._since, self._seconds)
        partitions, problems = partitions_of(sources, search, sources.find_report())
        with self._reach.viewing() as view:
            if view is None:
                self.problems = (NOT_STORED,)
                self._note("unit of work", "the oldest waits, as the workers report them")
                for wait in self._waits:
                    if wait.unit == self._text:
                        self._hit("unit", wait.unit, f"waits for {wait.waits_for} since {wait.since}, {wait.partition}")
                return
            looked = look_in(view, self._text, partitions, problems, search.max_seconds)
            self.problems = looked.problems
        for each in looked.found:
            self._hit("unit", self._text, f"{_wait_text(each.view.waits)}, {each.partition}")
        self._note("unit of work", "; ".join((f"the storage, {', '.join(looked.looked_in) or 'no partition'}", *looked.problems)))

    def _find_by_number(self) -> None:
        wanted = OutputNumber.find(self._text)
        if wanted is None:
            self._note("dead letter (number)", "not searched: a number is written as TOPIC-PARTITION#NUMBER")
            return
        if self._is_away("dead letter (number)"):
            return
        until = monotonic() + self._seconds
        try:
            with closing(self._reach.sources.open_dead_letters(AskedFor(numbers=(self._text,)), no_signature)) as store:
                self._note("dead letter (number)", store.where)
                for stored in store.letters():
                    number = OutputNumber.find(stored.number)
                    if stored.number == self._text:
                        self._hit("dead-letter", stored.number, _dead_letter_text(stored))
                    is_behind = number is not None and number.partition == wanted.partition and number.number >= wanted.number
                    if is_behind or monotonic() > until:
                        break
        except ResequencerError as error:
            self._note("dead letter (number)", f"could not be read: {printable(str(error))}")

    def _find_at_position(self) -> None:
        origin = Origin.find(self._text)
        if origin is None:
            self._note("record (position)", "not searched: a position is written as TOPIC-PARTITION@OFFSET")
            return
        if self._is_away("record (position)"):
            return
        found = self._reach.sources.find_unit_at(origin, self._seconds)
        for unit in found.units:
            self._hit("record", self._text, f"of unit {unit}", shows=unit)
        self._note("record (position)", found.searched)

    def _find_story(self) -> None:
        """Look for what is left of a unit without a state: what was sent, its dead letters, its orders."""
        if ("unit", self._text) in self.found:
            return
        search = Search(self._since, self._seconds)
        story = find_story(self._reach.sources, self._reach.viewing(), self._text, search, self._reach.ledger)
        if story.is_known:
            known = (
                counted(len(story.left.found), "notification") + " sent" if story.left.found else "",
                counted(len(story.dead_letters.found), "dead letter") if story.dead_letters.found else "",
                counted(len(story.found_orders), "order") if story.found_orders else "",
            )
            self._hit("unit", self._text, f"no state in the storage; {', '.join(filter(None, known))}")
        self.meaning += story.meaning
        self._note("unit of work", f"what was sent: {story.left.searched}")
        self._note("unit of work", f"dead letters: {story.dead_letters.searched}")
        if story.orders is not None:
            self._note("unit of work", f"orders: {story.orders.searched}")

    def _find_notification(self) -> None:
        if not _NOTIFICATION_ID.fullmatch(self._text):
            self._note("notification", "not searched: a notification id has 32 characters, A to Z and 2 to 7")
            return
        found = self._reach.sources.find_sent_by(SentBy(notification_id=self._text), self._seconds)
        for unit in found.units:
            self._hit("notification", self._text, f"of unit {unit}", shows=unit)
        self._note("notification", found.searched)

    def _find_deliveries(self) -> None:
        if self._reach.ledger is None:
            self._note("delivery", "not searched: no receiver has policy = ledger, which remembers what was delivered to whom")
            return
        try:
            found = self._reach.ledger.deliveries(self._text, _MAX_FOUND)
        except ResequencerError as error:
            self._note("delivery", f"not searched: {printable(str(error))}")
            return
        for each in found:
            if each.unit == self._text:
                self._hit("unit", each.unit, f"no state in the storage; {each.status} at the receiver {each.receiver}")
            else:
                text = f"of unit {each.unit}, {each.status} at the receiver {each.receiver}"
                self._hit("notification", each.notification_id, text, shows=each.unit)
        self._note("delivery", "the ledger of deliveries, as long as its retention keeps what has ended")

    def _find_dead_letters_of_position(self) -> None:
        if Origin.find(self._text) is None or self._is_away("dead letter (position of its record)"):
            return
        letters = search_dead_letters(
            self._reach.sources.open_dead_letters,
            lambda stored: str(stored.letter.record.origin) == self._text,
            self._since,
            self._seconds,
        )
        for each in letters.found:
            self._hit("dead-letter", each.number, f"{each.reason}, of the record at {each.position}")
        self._note("dead letter (position of its record)", letters.searched)

    def _find_by_end_to_end_id(self) -> None:
        what, sources = "EndToEndId", self._reach.sources
        if self.found and not self._is_all:
            return
        if self._reach.note_end_to_end is None:
            self._note(what, "not searched: it needs the role payments")
            return
        self._reach.note_end_to_end()
        sent = sources.find_sent_by(SentBy(end_to_end_id=self._text), self._seconds)
        with self._reach.viewing() as view:
            waiting = UnitsFound((), False, f"not searched in what waits: {NOT_STORED}")
            if view is not None:
                waiting = self._waiting_with(view)
        for found in (waiting, sent):
            for unit in found.units:
                self._hit("unit", unit, "its payment has this EndToEndId")
            self._note(what, found.searched)

    def _waiting_with(self, view: StorageView) -> UnitsFound:
        """Return the waiting units whose payment data, or a stashed record of theirs, has this EndToEndId."""
        quoted, until, looked = msgspec.json.encode(self._text), monotonic() + self._seconds, 0
        found: dict[str, None] = {}
        sources = self._reach.sources
        partitions, _ = partitions_of(sources, Search(), sources.find_report())
        try:
            for partition in partitions:
                changes = view.find_waiting(partition, None)
                portions = changes.portions if changes else ()
                # All names first: a storage may not like to be asked while it lists.
                names = (unit for portion in portions for unit, waits in portion if waits is not None)
                for unit in dict.fromkeys(islice(names, _MAX_WAITING)):
                    if monotonic() > until:
                        read = f"the payment data of {counted(looked, 'waiting unit')}: the time for it is over"
                        return UnitsFound(tuple(found), is_complete=False, searched=read)
                    looked += 1
                    here = view.find_unit(partition, unit)
                    bodies = () if here is None else _bodies(sources.codec.restore(partition, here.snapshot))
                    if any(_has_end_to_end_id(each, quoted) for each in bodies):
                        found[unit] = None
        except ResequencerError as error:
            return UnitsFound(tuple(found), is_complete=False, searched=f"not all could be read: {printable(str(error))}")
        searched = f"the payment data of {counted(looked, 'waiting unit')}; that of a unit that does not wait has no index"
        return UnitsFound(tuple(found), is_complete=False, searched=searched)

    def _is_away(self, what: str) -> bool:
        if self._away is not None:
            self._note(what, f"not searched, because the service says: {self._away}")
        return self._away is not None

    def _hit(self, kind: str, name: str, text: str, *, shows: str | None = None) -> None:
        """Note what was found. `shows` is the unit whose page and command show it."""
        page, command = _places(kind if shows is None else "unit", name if shows is None else shows)
        self.found.setdefault((kind, name), Hit(kind, name, text, page, command))

    def _note(self, what: str, text: str) -> None:
        self.searched.append(Searched(what, text))


def _places(kind: str, name: str) -> tuple[str, str]:
    """Return the page that shows it, and the command, in which a name from elsewhere is quoted."""
    if kind == "group":
        return f"/groups/{quote(name, safe='')}", f"resequencer groups show {shell_quoted(name)}"
    if kind == "dead-letter":
        return f"/dead-letter?{urlencode({'number': name})}", f"resequencer dead-letters show {shell_quoted(name)}"
    return f"/unit?{urlencode({'id': name})}", f"resequencer units show {shell_quoted(name)}"


def _wait_text(waits: Waits | None) -> str:
    if waits is None:
        return "nothing of it waits"
    return f"waits for {waits.shown_waits_for} since {instant_text(waits.since)}"


def _dead_letter_text(stored: StoredDeadLetter) -> str:
    of_unit = f" of unit {stored.unit}" if stored.unit else ""
    return f"{stored.letter.reason.value}{of_unit}, at {instant_text(stored.letter.dead_at)}"


def _has_end_to_end_id(body: bytes, quoted: bytes) -> bool:
    return quoted in body and b'"EndToEndId"' in body


def _bodies(unit: Unit) -> Iterator[bytes]:
    """Yield the payment data that the unit has taken over, and the values of its stashed records."""
    data = opened(unit.data)
    if isinstance(data, PaymentData):
        yield from (body for kind in (data.mds, data.pds, data.custom) for _, body in kind)
    entries = [*unit.stash, *unit.queue, *([unit.retry.entry] if unit.retry else [])]
    yield from (each.envelope.record.content for each in entries)
