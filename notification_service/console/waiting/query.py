"""Pages of the waiting units, and their counts, read from the copy."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from resequencer.clock import Instant

_MAX_CLASSES = 500
"""Up to this many classes are read separately, each by age; with more, all units are filtered."""

_FEW = 20_000
"""If the chosen classes have fewer units, a search by id reads these; otherwise the index by id, where they are frequent."""

_COUNTED = 10_000
"""The most matching units that are counted where a count must read them."""

_MAX_LISTED = 200


class WaitingFilter(msgspec.Struct, frozen=True):
    """Which waiting units to list. `waits_for` and `unit` are beginnings; `before` is the instant since which they wait."""

    waits_for: str = ""
    kind: str = ""
    partition: str = ""
    unit: str = ""
    before: Instant | None = None

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
    """A page of waiting units. `after` is the place from which the next page begins, None on the last one.

    `matching` counts all units that the filter lets through, `_COUNTED` + 1 if there are more than `_COUNTED`.
    `total`, `classes` (the largest first) and `kinds` are about all units, without the filter.
    """

    units: tuple[WaitingUnit, ...] = ()
    after: str | None = None
    matching: int = 0
    is_counted: bool = True
    total: Totals = Totals()
    classes: tuple[WaitingClass, ...] = ()
    class_count: int = 0


class BadPlace(ValueError):
    """The text is no place of a page."""


def read_page(connection: sqlite3.Connection, asked: WaitingFilter, after: str | None, limit: int) -> WaitingPage:
    """Return the page behind the place `after`, by age, or by id if the filter has the beginning of one.

    Raises:
        BadPlace: `after` is no place.
    """
    chosen = _Chosen(connection, asked)
    place = None if after is None else _place_of(after, is_by_unit=bool(asked.unit))
    hits = list(islice(chosen.by_unit(place, limit + 1) if asked.unit else chosen.by_age(place, limit + 1), limit + 1))
    units = tuple(_units_of(connection, [each.row for each in hits[:limit]]))
    classes = _largest_classes(connection)
    return WaitingPage(
        units,
        hits[limit - 1].place if len(hits) > limit else None,
        matching := chosen.count(),
        matching <= _COUNTED,
        _totals(connection),
        tuple(classes[:_MAX_LISTED]),
        len(classes),
    )


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

    def by_age(self, after: _Place | None, limit: int) -> Iterator[_Hit]:
        """Yield the rows, the oldest first."""
        yield from (_Hit(row, f"{since}.{row}") for since, row in self._by_age(after, limit))

    def _by_age(self, after: _Place | None, limit: int) -> Iterator[tuple[int, int]]:
        since, row = after or (-(2**62), 0)
        place = (since, row, self._before)
        if self._classes is None or len(self._classes) > _MAX_CLASSES:
            among, chosen = self._among_classes()
            query = f"SELECT since, id FROM waiting INDEXED BY by_age WHERE (since, id) > (?, ?) AND since < ? {among}"  # noqa: S608
            yield from self._connection.execute(f"{query} ORDER BY since, id LIMIT {limit:d}", (*place, *chosen))
            return
        query = "SELECT since, id FROM waiting WHERE class = ? AND (since, id) > (?, ?) AND since < ? ORDER BY since, id"
        yield from merge(*(self._connection.execute(query, (each, *place)) for each in self._classes))

    def by_unit(self, after: _Place | None, limit: int) -> Iterator[_Hit]:
        """Yield the rows, by unit."""
        unit, partition = after or (self._asked.unit, -1)
        among, chosen = self._among_classes()
        is_rare = self._classes is not None and self._sum_of_classes() < _FEW
        query = f"""SELECT unit, partition, id FROM waiting INDEXED BY {"by_class" if is_rare else "by_unit"}
            WHERE (unit, partition) > (?, ?) AND unit < ? AND since < ? {among} ORDER BY unit, partition LIMIT {limit:d}"""  # noqa: S608
        found = self._connection.execute(query, (unit, partition, _end_of(self._asked.unit), self._before, *chosen))
        yield from (_Hit(row, f"{partition}.{unit}") for unit, partition, row in found)

    def count(self) -> int:
        """Return how many there are, `_COUNTED` + 1 for more than `_COUNTED` where counting reads each."""
        if self._asked.unit:
            return sum(1 for _ in self.by_unit(None, _COUNTED + 1))
        if self._asked.before is None:
            return self._sum_of_classes()
        return sum(1 for _ in islice(self.by_age(None, _COUNTED + 1), _COUNTED + 1))

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
    """Return the least text that is greater than all texts with this beginning."""
    return beginning + chr(0x10FFFF)


def _place_of(text: str, *, is_by_unit: bool) -> _Place:
    number, dot, rest = text.partition(".")
    try:
        if not dot or not -(2**62) < int(number) < 2**62:
            raise ValueError
        return (rest, int(number)) if is_by_unit else (int(number), min(int(rest), 2**62))
    except ValueError:
        raise BadPlace(text) from None
