"""Pages of the waiting units, and their counts: read from a copy of the index that a thread keeps fresh while people look."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import merge
from itertools import islice
from threading import Lock
from typing import NamedTuple

import msgspec

from notification_service.console.sources import FRESH_MS, Pace, Refresher, Sources
from notification_service.console.waiting.copy import CopyUnusable, WaitingCopy
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.printable import printable
from resequencer.record import Partition
from storage.view_port import StorageView

_MAX_CLASSES = 500
"""Up to this many classes are read separately, each by age; with more, all units are filtered."""

_FEW = 20_000
"""If the chosen classes have fewer units, a search by id reads these; otherwise the index by id, where they are frequent."""

_COUNTED = 10_000
"""How many matching units are counted at most where a count must read them."""

_MAX_LISTED = 200
_AT_ONCE = 1_000


class Sort(StrEnum):
    """The order of a list: the longest wait first, the shortest first, or by id."""

    AGE = "age"
    NEWEST = "newest"
    ID = "id"


class WaitingFilter(msgspec.Struct, frozen=True):
    """Which waiting units to list. `waits_for` and `unit` are beginnings; `before` is the instant since which they wait.

    With `unit` the order is by id, whatever `sort` is.
    """

    waits_for: str = ""
    kind: str = ""
    partition: str = ""
    unit: str = ""
    before: Instant | None = None
    sort: Sort = Sort.AGE

    @property
    def is_by_unit(self) -> bool:
        return bool(self.unit) or self.sort is Sort.ID

    @property
    def is_about_classes(self) -> bool:
        return bool(self.waits_for or self.kind or self.partition)


class WaitingUnit(msgspec.Struct, frozen=True):
    """A waiting unit. At `until` it is woken; `kind` says why."""

    unit: str
    partition: str
    waits_for: str
    kind: str
    since: Instant
    until: Instant
    envelopes: int
    bytes: int


class Totals(msgspec.Struct, frozen=True):
    """What waits: units, their stashed envelopes, and the bytes of these."""

    units: int = 0
    envelopes: int = 0
    bytes: int = 0


class WaitingClass(msgspec.Struct, frozen=True):
    """The units of all partitions that wait for the same, and of the same kind."""

    waits_for: str
    kind: str
    units: int
    envelopes: int
    bytes: int


class WaitingPage(msgspec.Struct, frozen=True):
    """A page of waiting units. `after` is the place from which the next page begins, None on the last one; `before` the place
    before which the previous one ends, None on the first one.

    `matching` counts all units that the filter lets through, `_COUNTED` + 1 if there are more than `_COUNTED`.
    `total`, `classes` (the largest first) and `kinds` are about all units, without the filter.
    """

    units: tuple[WaitingUnit, ...] = ()
    after: str | None = None
    before: str | None = None
    matching: int = 0
    is_counted: bool = True
    total: Totals = Totals()
    classes: tuple[WaitingClass, ...] = ()
    class_count: int = 0


class BadPlace(ValueError):
    """The text is no place of a page."""


def read_page(
    connection: sqlite3.Connection, asked: WaitingFilter, after: str | None, limit: int, before: str | None = None
) -> WaitingPage:
    """Return the page behind the place `after`, or that before the place `before`, in the order that is asked for.

    Raises:
        BadPlace: `after` or `before` is no place.
    """
    chosen, text = _Chosen(connection, asked), after if before is None else before
    place = None if text is None else _place_of(text, is_by_unit=asked.is_by_unit)
    hits = list(islice(chosen.read(place, limit + 1, is_backwards=before is not None), limit + 1))
    has_more, hits = len(hits) > limit, hits[:limit]
    if before is not None and len(hits) < limit:
        return read_page(connection, asked, None, limit)
    if before is not None:
        hits.reverse()
    is_last, is_first = (not has_more, after is None) if before is None else (False, not has_more)
    classes = _largest_classes(connection)
    return WaitingPage(
        tuple(_units_of(connection, [each.row for each in hits])),
        hits[-1].place if hits and not is_last else None,
        hits[0].place if hits and not is_first else None,
        matching := chosen.count(),
        matching <= _COUNTED,
        _totals(connection),
        tuple(classes[:_MAX_LISTED]),
        len(classes),
    )


def read_rows(connection: sqlite3.Connection, asked: WaitingFilter, after: str | None, limit: int) -> WaitingPage:
    """As `read_page`, without counts and totals."""
    place = None if after is None else _place_of(after, is_by_unit=asked.is_by_unit)
    hits = list(islice(_Chosen(connection, asked).read(place, limit), limit))
    return WaitingPage(tuple(_units_of(connection, [each.row for each in hits])), hits[-1].place if len(hits) == limit else None)


def find_partitions_of(connection: sqlite3.Connection, unit: str) -> list[str]:
    """Return the partitions in which the unit waits."""
    query = "SELECT name FROM waiting JOIN partitions ON partitions.id = waiting.partition WHERE unit = ?"
    return [name for (name,) in connection.execute(query, (unit,))]


_Place = tuple[int, int] | tuple[str, int]
"""By age: since when, and the row's id. By id: the unit, and its partition's number."""


class _Hit(NamedTuple):
    """A row's id, and the text of its place."""

    row: int
    place: str


class _Chosen:
    """The rows that a filter lets through."""

    def __init__(self, connection: sqlite3.Connection, asked: WaitingFilter) -> None:
        self._connection = connection
        self._asked = asked
        self._classes = _classes(connection, asked) if asked.is_about_classes else None
        self._before = 2**62 if asked.before is None else asked.before

    def read(self, place: _Place | None, limit: int, *, is_backwards: bool = False) -> Iterator[_Hit]:
        """Yield the rows behind the place, in the order that is asked for, or backwards from it."""
        if self._asked.is_by_unit:
            yield from self._by_unit(place, limit, is_down=is_backwards)
            return
        is_down = is_backwards is not (self._asked.sort is Sort.NEWEST)
        yield from (_Hit(row, f"{since}.{row}") for since, row in self._by_age(place, limit, is_down=is_down))

    def _by_age(self, place: _Place | None, limit: int, *, is_down: bool) -> Iterator[tuple[int, int]]:
        since, row = place or ((2**62, 2**62) if is_down else (-(2**62), 0))
        values = (since, row, self._before)
        beyond, order = ("(since, id) < (?, ?)", "since DESC, id DESC") if is_down else ("(since, id) > (?, ?)", "since, id")
        if self._classes is None or len(self._classes) > _MAX_CLASSES:
            among, chosen = self._among_classes()
            query = f"SELECT since, id FROM waiting INDEXED BY by_age WHERE {beyond} AND since < ? {among}"  # noqa: S608
            yield from self._connection.execute(f"{query} ORDER BY {order} LIMIT {limit:d}", (*values, *chosen))
            return
        query = f"SELECT since, id FROM waiting WHERE class = ? AND {beyond} AND since < ? ORDER BY {order}"  # noqa: S608
        yield from merge(*(self._connection.execute(query, (each, *values)) for each in self._classes), reverse=is_down)

    def _by_unit(self, place: _Place | None, limit: int, *, is_down: bool) -> Iterator[_Hit]:
        beginning = self._asked.unit
        unit, partition = place or ((_end_of(beginning), -1) if is_down else (beginning, -1))
        beyond, order = ("(unit, partition) < (?, ?)", "unit DESC, partition DESC")
        if not is_down:
            beyond, order = ("(unit, partition) > (?, ?)", "unit, partition")
        among, chosen = self._among_classes()
        is_rare = self._classes is not None and self._sum_of_classes() < _FEW
        query = f"""SELECT unit, partition, id FROM waiting INDEXED BY {"by_class" if is_rare else "by_unit"}
            WHERE {beyond} AND unit >= ? AND unit < ? AND since < ? {among} ORDER BY {order} LIMIT {limit:d}"""  # noqa: S608
        values = (unit, partition, beginning, _end_of(beginning), self._before, *chosen)
        yield from (_Hit(row, f"{partition}.{unit}") for unit, partition, row in self._connection.execute(query, values))

    def count(self) -> int:
        """Return how many there are, `_COUNTED` + 1 for more than `_COUNTED` where counting reads each."""
        if self._asked.before is None and not self._asked.unit:
            return self._sum_of_classes()
        return sum(1 for _ in islice(self.read(None, _COUNTED + 1), _COUNTED + 1))

    def _among_classes(self) -> tuple[str, tuple[str, ...]]:
        """Return a condition for the classes, and its parameters."""
        if self._classes is None:
            return "", ()
        return "AND class IN (SELECT value FROM json_each(?))", (json.dumps(self._classes),)

    def _sum_of_classes(self) -> int:
        counts = dict(self._connection.execute("SELECT id, units FROM classes"))
        return sum(counts.values() if self._classes is None else (counts[each] for each in self._classes))


def _classes(connection: sqlite3.Connection, asked: WaitingFilter) -> list[int]:
    query = "SELECT classes.id, waits_for FROM classes JOIN partitions ON partitions.id = partition WHERE units > 0"
    wanted = [(column, value) for column, value in (("kind", asked.kind), ("name", asked.partition)) if value]
    conditions = "".join(f" AND {column} = ?" for column, _ in wanted)
    found = connection.execute(query + conditions, [value for _, value in wanted])
    return [each for each, waits_for in found if waits_for.startswith(asked.waits_for)]


def _units_of(connection: sqlite3.Connection, rows: Sequence[int]) -> Iterator[WaitingUnit]:
    query = """SELECT unit, name, waits_for, kind, since, until, waiting.envelopes, waiting.bytes FROM waiting
        JOIN classes ON classes.id = class JOIN partitions ON partitions.id = waiting.partition WHERE waiting.id = ?"""
    for row in rows:
        yield WaitingUnit(*connection.execute(query, (row,)).fetchone())


def _totals(connection: sqlite3.Connection) -> Totals:
    sums = "SELECT coalesce(sum(units), 0), coalesce(sum(envelopes), 0), coalesce(sum(bytes), 0) FROM classes"
    return Totals(*connection.execute(sums).fetchone())


def _largest_classes(connection: sqlite3.Connection) -> list[WaitingClass]:
    query = """SELECT waits_for, kind, sum(units), sum(envelopes), sum(bytes) FROM classes WHERE units > 0
        GROUP BY waits_for, kind ORDER BY 3 DESC, waits_for, kind"""
    return [WaitingClass(*row) for row in connection.execute(query)]


def _end_of(beginning: str) -> str:
    """Return the smallest text that is greater than all texts with this beginning."""
    return beginning + chr(0x10FFFF)


def _place_of(text: str, *, is_by_unit: bool) -> _Place:
    number, dot, remainder = text.partition(".")
    try:
        if not dot or not -(2**62) < int(number) < 2**62:
            raise ValueError
        return (remainder, int(number)) if is_by_unit else (int(number), min(int(remainder), 2**62))
    except ValueError:
        raise BadPlace(text) from None


LOOKED_AT, IDLE = Pace(60.0, 1.0, 1 / 3), Pace(float("inf"), 10.0, 1 / 50)


class Freshness(msgspec.Struct, frozen=True):
    """As of when a partition's rows are right, None if they were never read, and why they are not newer."""

    partition: str
    as_of: Instant | None
    problem: str | None = None


class WaitingAnswer(msgspec.Struct, frozen=True):
    """A page, and how old each partition's part of it is. `problem` says why there is no page, or no newer one."""

    page: WaitingPage
    partitions: tuple[Freshness, ...]
    problem: str | None = None

    @property
    def as_of(self) -> Instant | None:
        """The instant as of which all of it is right, None if a part was never read."""
        instants = [each.as_of for each in self.partitions]
        known = [each for each in instants if each is not None]
        return min(known) if known and len(known) == len(instants) else None


class WaitingUnits:
    """The waiting units as the console shows them. With storage `none` there is no copy, and `is_stored` is false."""

    def __init__(self, sources: Sources) -> None:
        self.is_stored = sources.open_view is not None
        self._sources = sources
        self._copy = WaitingCopy(sources.run_directory, sources.storage)
        self._view: StorageView | None = None
        self._lock = Lock()
        self._freshness: Mapping[str, Freshness] = {}
        self._problem: str | None = None
        self._wholes = 0
        self._refresher = Refresher("waiting units", self.refresh, self._close_view, (LOOKED_AT, IDLE))

    def start(self) -> None:
        """Start the thread. Without it, `refresh` refreshes."""
        if self.is_stored:
            self._refresher.start()

    def close(self) -> None:
        self._refresher.stop()

    def ask(self, asked: WaitingFilter, after: str | None = None, limit: int = 50, before: str | None = None) -> WaitingAnswer:
        """Return a page, as `read_page`. A copy that was not looked at for a while is refreshed first, if that is quick.

        Raises:
            BadPlace: `after` or `before` is no place of a page.
        """
        self._refresher.look(LOOKED_AT, is_old=self._is_old())
        page, problem = WaitingPage(), self._problem
        try:
            with self._copy.reading() as connection:
                if connection is not None:
                    page = read_page(connection, asked, after, limit, before)
        except CopyUnusable as error:
            problem = f"the copy of the waiting units cannot be read: {error}"
        return WaitingAnswer(page, tuple(self._freshness.values()), problem)

    def all(self, asked: WaitingFilter) -> Iterator[WaitingUnit]:
        """Yield all units that the filter lets through, read in portions: who takes them slowly keeps nothing open.

        Raises:
            CopyUnusable: The copy cannot be read.
        """
        after, is_first = None, True
        while is_first or after is not None:
            with self._copy.reading() as connection:
                page = WaitingPage() if connection is None else read_rows(connection, asked, after, _AT_ONCE)
            yield from page.units
            after, is_first = page.after, False

    def find_partitions(self, unit: str) -> Sequence[Partition]:
        """Return the partitions in which the unit waited when the copy was refreshed; none if there is no copy."""
        try:
            with self._copy.reading() as connection:
                names = [] if connection is None else find_partitions_of(connection, unit)
        except CopyUnusable:
            return ()
        return [found for name in names if (found := Partition.find(name)) is not None]

    def refresh(self) -> bool:
        """Read what has changed in each partition. What cannot be read or written is noted, and tried again the next time.

        Return whether to read again soon: after a listing of a whole partition, unless the one before was such a listing, too.
        The longer the changes since are postponed, the more they are, until the whole is to be listed once more.
        """
        with self._lock:
            is_changed_alone = True
            try:
                known = self._copy.markers()
                self._problem = None
                names = self._partitions(known)
                noted = {name: Freshness(name, known.get(name, (None, None))[1]) for name in names}
                self._freshness = {**noted, **self._freshness}
                for name in names:
                    if self._refresher.is_stopping:
                        return False
                    is_changed_alone &= self._refresh(name, known.get(name, (None, None))[0])
            except CopyUnusable as error:
                self._problem = f"the copy of the waiting units cannot be written: {error}"
                if error.is_damaged:
                    self._copy.delete()
            finally:
                self._wholes = 0 if is_changed_alone else self._wholes + 1
            return self._wholes == 1

    def _refresh(self, name: str, marker: str | None) -> bool:
        """Bring one partition up to date. Return whether that took less than the whole."""
        partition = Partition.find(name)
        assert partition is not None
        now = self._sources.clock.now()
        before = self._freshness.get(name, Freshness(name, None))
        try:
            changes = self._opened_view().find_waiting(partition, marker)
            if changes is not None:
                self._copy.take(name, changes, now)
            self._freshness = {**self._freshness, name: Freshness(name, now)}
        except CopyUnusable:
            raise
        except ResequencerError as error:
            self._freshness = {**self._freshness, name: Freshness(name, before.as_of, printable(str(error)))}
            return True
        return changes is None or not changes.is_whole

    def _partitions(self, known: Mapping[str, object]) -> list[str]:
        """Return the partitions of the input and those of the copy, by name."""
        names = set(known)
        try:
            names |= {str(each) for each in self._sources.find_partitions()}
        except ResequencerError as error:
            self._problem = f"the partitions of the input are not known: {printable(str(error))}"
        report = self._sources.find_report()
        names |= set() if report is None else {each.partition for each in report.whole.partitions}
        return sorted(names)

    def _opened_view(self) -> StorageView:
        if self._view is None:
            assert self._sources.open_view is not None
            self._view = self._sources.open_view()
        return self._view

    def _is_old(self) -> bool:
        now = self._sources.clock.now()
        ages = [now - each.as_of for each in self._freshness.values() if each.as_of is not None]
        return not ages or max(ages) > FRESH_MS

    def _close_view(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()
