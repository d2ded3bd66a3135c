"""How much a ledger's database has to look at: a count, which is the same on a busy machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.ledger_stage import LedgerStage
from sqlalchemy import event, text

_NUMBERS = {
    True: "with recursive n(i) as (select :first union all select i + 1 from n where i < :last)",
    False: "with n(i) as (select generate_series(cast(:first as bigint), cast(:last as bigint)))",
}
_ROWS = (
    "insert into delivery_row (receiver, job, key, dedup, notification_id, position, headers, value, status, step, is_head,"
    " due_at, epoch, attempts, questions, is_late, taken_at, ended_at)"
    " {numbers} select 'r', '{job}', {key}, {name}, {name}, 'p@' || i, :headers, :value, :status,"
    " 'deliver', {is_head}, :now, 0, 0, 0, false, :now, cast(:ended_at as bigint) from n"
)


class Work:
    """`steps` of SQLite's machine, or rows that PostgreSQL's questions looked at; `writes` are transactions that lock."""

    def __init__(self) -> None:
        self.steps = 0
        self.writes = 0


@contextmanager
def counted(stage: LedgerStage) -> Iterator[Work]:
    """Count what the ledger of the stage does meanwhile."""
    work, database = Work(), stage.ledger.database
    handled: list[Any] = []

    def step() -> int:
        work.steps += 1
        return 0

    def before(_connection: Any, cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        work.writes += statement == "begin immediate"
        if database.is_sqlite:
            cursor.connection.set_progress_handler(step, 1)
            handled.append(cursor.connection)
        elif statement.startswith("SELECT") and not many:
            cursor.execute(f"explain (analyze, format json) {statement}", parameters)
            work.steps += _rows_of(cursor.fetchone()[0][0]["Plan"])

    event.listen(database._engine, "before_cursor_execute", before)
    try:
        yield work
    finally:
        event.remove(database._engine, "before_cursor_execute", before)
        for each in handled:
            each.set_progress_handler(None, 1)


def _rows_of(node: dict[str, Any]) -> int:
    looked_at = node["Actual Rows"] + sum(found for name, found in node.items() if name.startswith("Rows Removed"))
    return round(looked_at * node["Actual Loops"]) + sum(map(_rows_of, node.get("Plans", ())))


def fill(stage: LedgerStage, count: int, job: str, *, key: str | None = None, ended_at: int | None = None) -> None:
    """Add rows to a job: of units of their own, or all of the unit `key`; open, or ended at this instant."""
    is_ended = ended_at is not None
    database = stage.ledger.database
    stage.ledger.start_job(job, "r", "s", "ann")
    values = {"first": 1, "last": count, "headers": b"[]", "value": b"{}", "now": stage.now, "ended_at": ended_at}
    values |= {"status": "processed" if is_ended else "ready"}
    name = f"'{job}-{count}-' || i"
    of_unit = f"'{key}'" if key else name
    head = "false" if is_ended else "i = 1" if key else "true"
    with database.write() as connection:
        keys = f"insert into delivery_key (receiver, key) {_NUMBERS[database.is_sqlite]} select distinct 'r', {of_unit} from n"
        connection.execute(text(keys), values)
        rows = _ROWS.format(numbers=_NUMBERS[database.is_sqlite], job=job, name=name, key=of_unit, is_head=head)
        connection.execute(text(rows), values)
        counts = text("update delivery_job set ingested = ingested + :new, processed = processed + :ended where id = :job")
        connection.execute(counts, {"new": count, "ended": count * is_ended, "job": job})
    if not database.is_sqlite:
        with database._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("vacuum (analyze) delivery_row, delivery_key, delivery_job"))
