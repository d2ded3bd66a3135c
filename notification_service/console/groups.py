"""The groups as the console shows them: an index in an SQLite file, kept fresh by a thread while people look.

The index has the groups in the order of the page, by state and by text. It is made of the heads in pieces, and what did not
change since is not written again; so neither a page nor a refresh has all groups in memory. It is the console's own and can be
made again at any time, so nothing of it is synced.
"""

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import NamedTuple

import msgspec

from guardian import headers as names
from notification_service.aggregation.completions import Completed
from notification_service.aggregation.payments.commands import encode_close
from notification_service.aggregation.payments.group_view import NOT_THROUGH, find_described
from notification_service.aggregation.payments.head import GroupState
from notification_service.aggregation.view import StoreView
from notification_service.console.sources import Pace, StoreSource
from notification_service.console.stores.watch import PAGE, StoreWatch, WatchedStore
from resequencer.clock import Clock, Instant
from resequencer.errors import TransientError
from storage.private_file import make_private

_AT_ONCE = 1_000
_MAX_COUNTED = 10_000
_BUSY_SECONDS = 5.0
_SEARCH_SECONDS = 2.0
"""How long a text is searched for: among a million groups a search for one that is not there takes longer."""
_STEPS = 10_000
_SCHEMA = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE known (key TEXT PRIMARY KEY, mark BLOB NOT NULL, place INTEGER NOT NULL, at INTEGER NOT NULL,
        state TEXT NOT NULL, has_problem INTEGER NOT NULL, text TEXT NOT NULL, party TEXT NOT NULL, began INTEGER NOT NULL)
        WITHOUT ROWID;
    CREATE INDEX known_place ON known (place, at, key);
    CREATE INDEX known_state ON known (state, has_problem);
"""
_PLACES = {GroupState.OPEN: 0, GroupState.INCOMPLETE: 0, GroupState.COMPLETE: 1, GroupState.CLOSED: 1, GroupState.ENDED: 2}
"""What is not through comes first, what has ended last."""


class IndexUnusable(TransientError):
    """The file cannot be written or read; with `is_damaged` it must be made again."""

    def __init__(self, path: Path, error: sqlite3.Error | OSError, *, is_damaged: bool) -> None:
        self.is_damaged = is_damaged
        super().__init__(f"the index of the groups cannot be used: {path}: {error}")


class GroupFilter(NamedTuple):
    """Which groups are listed: all that is given must hold. `text` is part of the key or of the message's id, whatever its case.

    With `sees_parties` it may also be part of the initiating party: otherwise the filter would show what this person may not see.
    `message_id` is the whole id of the message, whatever its case.
    """

    state: str = ""
    has_problem: bool = False
    text: str = ""
    sees_parties: bool = False
    message_id: str = ""
    is_newest_first: bool = False


class Found(NamedTuple):
    """The first keys of a filter, and how many it has; if not `is_counted`, there are more.

    If not `is_whole`, the search took too long and was given up: there may be others, and none was counted.
    """

    keys: tuple[str, ...] = ()
    matching: int = 0
    is_counted: bool = True
    is_whole: bool = True


class GroupTotals(msgspec.Struct, frozen=True):
    """How many groups there are in each state, how many of those that are not through have a problem.

    `oldest_at` is when the oldest group that is not through began (ms since 1970), None if all are through.
    """

    by_state: Mapping[str, int] = {}
    with_problems: int = 0
    oldest_at: Instant | None = None

    @property
    def groups(self) -> int:
        return sum(self.by_state.values())

    @property
    def not_through(self) -> int:
        return sum(self.by_state.get(each.value, 0) for each in NOT_THROUGH)


class GroupIndex:
    """The file. One thread refreshes it, any thread may ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._is_whole = False

    def refresh(self, view: StoreView) -> GroupTotals:
        """Take over what differs: of the keys that have changed, where the view knows them. Called by one thread, with the view
        that this thread has refreshed.

        Raises:
            IndexUnusable: It cannot be written.
            The errors of the view.
        """
        with self._translated():
            connection, changed = self._opened(), view.take_changed()
            was_whole, self._is_whole = self._is_whole, False
            if changed is not None and was_whole:
                keys = sorted(changed)
                for begin in range(0, len(keys), _AT_ONCE):
                    _take_keys(connection, view, keys[begin : begin + _AT_ONCE])
            else:
                _take_all(connection, view)
            self._is_whole = True
            return _totals(connection)

    def find(self, wanted: GroupFilter, limit: int, offset: int = 0) -> Found:
        """Return up to `limit` keys behind `offset`: what is not through, the oldest first; then the others, the latest change
        first.

        With `is_newest_first` the groups that began last come first, whatever their state.

        Raises:
            IndexUnusable: It cannot be read.
        """
        if not self._path.exists():
            return Found()
        sql, values = _condition(wanted)
        with self._translated(), _reading(self._path) as connection:
            if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
                return Found()
            until = monotonic() + _SEARCH_SECONDS
            connection.set_progress_handler(lambda: int(monotonic() > until), _STEPS)
            # All rows in the order of the table are read ten times as fast as in the order of an index.
            order = "+place, +at, +key" if wanted.text or wanted.message_id else "place, at, key"
            order = "began DESC, +key" if wanted.is_newest_first else order
            listed = f"SELECT key FROM known WHERE {sql} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608 - The condition is ours.
            keys = tuple(_until_interrupted(connection, listed, (*values, limit, offset)))
            if monotonic() > until:
                return Found(keys, len(keys), is_counted=False, is_whole=False)
            connection.set_progress_handler(None, 0)
            bounded = f"SELECT count(*) FROM (SELECT 1 FROM known WHERE {sql} LIMIT ?)"  # noqa: S608 - As above.
            (matching,) = connection.execute(bounded, (*values, _MAX_COUNTED + 1)).fetchone()
        return Found(keys, min(matching, _MAX_COUNTED), matching <= _MAX_COUNTED)

    def delete(self) -> None:
        """Delete the file: the next refresh makes it again."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.delete()  # Of an earlier process: made again it cannot be of another service or another version.
            connection = sqlite3.connect(make_private(self._path), timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection, self._is_whole = connection, False
        return self._connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise IndexUnusable(self._path, error, is_damaged=False) from error
        except sqlite3.Error as error:
            raise IndexUnusable(self._path, error, is_damaged=True) from error


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
    try:
        yield connection
    finally:
        connection.close()


def _until_interrupted(connection: sqlite3.Connection, sql: str, values: Sequence[object]) -> Iterator[str]:
    try:
        for (key,) in connection.execute(sql, values):
            yield key
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise


def _take_all(connection: sqlite3.Connection, view: StoreView) -> None:
    after, heads = "", view.heads()
    while piece := list(islice(heads, _AT_ONCE)):
        marks = connection.execute("SELECT key, mark FROM known WHERE key > ? AND key <= ?", (after, piece[-1][0]))
        _take(connection, piece, dict(marks.fetchall()))
        after = piece[-1][0]
    connection.execute("DELETE FROM known WHERE key > ?", (after,))


def _take_keys(connection: sqlite3.Connection, view: StoreView, keys: Sequence[str]) -> None:
    heads = [(key, found.body) for key in keys if (found := view.find(key)) is not None]
    marks = connection.execute("SELECT key, mark FROM known WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(keys),))
    _take(connection, heads, dict(marks.fetchall()))


def _take(connection: sqlite3.Connection, heads: Sequence[tuple[str, bytes]], marks: Mapping[str, bytes]) -> None:
    """Write the heads that are new or differ from their `marks`, and delete the keys that have no head, in one transaction."""
    gone = [(key,) for key in marks.keys() - {key for key, _ in heads}]
    changed = [(key, mark, head) for key, head in heads if marks.get(key) != (mark := blake2b(head, digest_size=8).digest())]
    rows = [row for key, mark, head in changed if (row := _row(key, mark, head)) is not None]
    if rows or gone:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM known WHERE key = ?", gone)
        connection.executemany("INSERT OR REPLACE INTO known VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")


def _row(key: str, mark: bytes, head: bytes) -> tuple[object, ...] | None:
    group = find_described(key, head)
    if group is None:
        return None
    place = _PLACES[group.state]
    at = group.first_at if place == 0 else -group.last_at
    text = f"{key}\n{group.message_id}".casefold()
    return (
        key,
        mark,
        place,
        at,
        group.state.value,
        int(group.needs_person),
        text,
        group.initiating_party.casefold(),
        group.first_at,
    )


def _totals(connection: sqlite3.Connection) -> GroupTotals:
    by_state: dict[str, int] = {}
    with_problems = 0
    for state, has_problem, count in connection.execute("SELECT state, has_problem, count(*) FROM known GROUP BY 1, 2"):
        by_state[state] = by_state.get(state, 0) + count
        with_problems += count if has_problem else 0
    (oldest_at,) = connection.execute("SELECT min(at) FROM known WHERE place = 0").fetchone()
    return GroupTotals(by_state, with_problems, oldest_at)


def _condition(wanted: GroupFilter) -> tuple[str, list[object]]:
    sql, values = ["1"], list[object]()
    if wanted.state:
        sql.append("state = ?")
        values.append(wanted.state)
    if wanted.has_problem:
        sql.append("has_problem = 1")
    if wanted.text:
        folded = wanted.text.casefold()
        sql.append("(instr(text, ?) OR instr(party, ?))" if wanted.sees_parties else "instr(text, ?)")
        values += [folded, folded] if wanted.sees_parties else [folded]
    if wanted.message_id:
        sql.append("substr(text, instr(text, char(10)) + 1) = ?")
        values.append(wanted.message_id.casefold())
    return " AND ".join(sql), values


_IDLE = Pace(float("inf"), 10.0, 1 / 50)


class GroupsWatch(StoreWatch):
    """The groups as the console shows them, with their index."""

    def __init__(self, source: StoreSource, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        super().__init__("groups", source, clock, on_change, (PAGE, _IDLE))
        self._index: GroupIndex | None = None
        self.totals: GroupTotals | None = None
        """As of the last refresh; None before the first."""

    def glance(self) -> GroupTotals | None:
        """Return the totals of the last refresh, None while the groups cannot be read."""
        return self.totals if self.freshness.problem is None else None

    @property
    def problem(self) -> str | None:
        """Why the groups cannot be read at the moment; None while they can, and before the first refresh."""
        return self.freshness.problem

    def find(self, wanted: GroupFilter, limit: int, offset: int = 0) -> Found:
        """Return keys of a filter, as the index has them.

        Raises:
            IndexUnusable: The index cannot be read.
        """
        return Found() if self._index is None else self._index.find(wanted, limit, offset)

    def _take(self, view: StoreView) -> None:
        if self._index is None:
            self._index = GroupIndex(self._source.claim() / "index.db")
        try:
            self.totals = self._index.refresh(view)
        except IndexUnusable as error:
            if error.is_damaged:
                self._index.delete()
            raise

    def _close_view(self) -> None:
        """Close the view. The index remains: what it knows is shown with its age."""
        super()._close_view()
        if self._refresher.is_stopping and self._index is not None:
            self._index.delete()


_REMEMBERED = 1_000


class GivenClose(NamedTuple):
    """Who ordered by this console to close a group, and when."""

    by: str
    at: Instant


class Groups(WatchedStore):
    """The payments of messages. May be used from several threads."""

    watch: GroupsWatch

    def __init__(self, source: StoreSource, clock: Clock) -> None:
        super().__init__(source, clock, describe_report)
        self._clock = clock
        self.watch = GroupsWatch(source, clock, self.feed.note_change)
        self._given: OrderedDict[str, GivenClose] = OrderedDict()
        self._lock = Lock()

    def close_group(self, key: str, by: str, because: str) -> None:
        """Give the command, durably. The worker that has the group carries it out.

        Raises:
            The errors of a transport: it is not known whether it was given; it is harmless to give it again.
        """
        with closing(self.source.open_commands()) as commands:
            commands.update(key, None, encode_close(by, because))
        with self._lock:
            self._given[key] = GivenClose(by, self._clock.now())
            self._given.move_to_end(key)
            while len(self._given) > _REMEMBERED:
                self._given.popitem(last=False)

    def find_given(self, key: str) -> GivenClose | None:
        """Return who ordered to close the group; None without such an order, or if it was long ago."""
        with self._lock:
            return self._given.get(key)


class CompletedEvent(msgspec.Struct, frozen=True):
    """A report on a group was made; its `report` is its number, from 1. `message_id` is its GrpHdr/MsgId.

    `status` is its GrpSts, `missing` how many payments have no final status, `total` the NbOfTxs. Where `possible_duplicate` is
    set the same report may have been sent before: values in files were lost.
    """

    group: str
    report: int
    message_id: str
    status: str | None
    total: int | None
    missing: int
    amended: bool
    closed_by: str | None
    possible_duplicate: bool


def describe_report(record: Completed, sees_values: bool) -> CompletedEvent | None:
    """Return what everyone may see of a report."""
    del sees_values
    texts = names.texts_of(record.headers)
    group, report = texts.get(names.GROUP_ID), texts.get(names.GROUP_REPORT, "")
    if group is None or not report.isdigit():
        return None  # Another program wrote it.
    total, missing = texts.get(names.GROUP_TOTAL, ""), texts.get(names.INCOMPLETE, "")
    return CompletedEvent(
        group,
        int(report),
        texts.get(names.NOTIFICATION_ID, ""),
        texts.get(names.GROUP_STATUS),
        int(total) if total.isdigit() else None,
        int(missing) if missing.isdigit() else 0,
        names.AMENDED in texts,
        texts.get(names.CLOSED_BY),
        names.POSSIBLE_DUPLICATE in texts,
    )
