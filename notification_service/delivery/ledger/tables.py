"""The tables of the ledger. All instants are milliseconds since 1970, of the database's clock."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    literal_column,
    text,
)

METADATA = MetaData()

_Id = BigInteger().with_variant(Integer, "sqlite")
_OPEN = "status not in ('processed', 'rejected', 'failed', 'cancelled')"

JOBS = Table(
    "delivery_job",
    METADATA,
    Column("id", String(100), primary_key=True),
    Column("receiver", String(60), nullable=False),
    Column("source", Text, nullable=False),
    Column("is_live", Boolean, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("started_by", Text, nullable=False),
    # What was read, and what of it made no row.
    Column("read", BigInteger, nullable=False, default=0),
    Column("duplicates", BigInteger, nullable=False, default=0),
    Column("not_selected", BigInteger, nullable=False, default=0),
    # Rows, and those of them that have ended.
    Column("ingested", BigInteger, nullable=False, default=0),
    Column("processed", BigInteger, nullable=False, default=0),
    Column("rejected", BigInteger, nullable=False, default=0),
    Column("failed", BigInteger, nullable=False, default=0),
    Column("cancelled", BigInteger, nullable=False, default=0),
    # Calls that were made again, by mode.
    Column("suspensions", BigInteger, nullable=False, default=0),
    Column("verifications", BigInteger, nullable=False, default=0),
    Column("back_offs", BigInteger, nullable=False, default=0),
    Column("limits", BigInteger, nullable=False, default=0),
    Column("late", BigInteger, nullable=False, default=0),
    # Results of former owners, which changed nothing.
    Column("refused_results", BigInteger, nullable=False, default=0),
    Column("sealed_at", BigInteger),
    # How many rows the job has in the end: read - duplicates - not_selected, fixed when the end of its source was read.
    Column("expected", BigInteger),
    Column("completed_at", BigInteger),
    Column("completions", Integer, nullable=False, default=0),
    Column("cancelled_at", BigInteger),
    # While failed rows are opened again: `in-order`, or `late` if those are among them behind which a later one was delivered.
    Column("repair", String(20)),
    # The repair has decided about the rows up to this one.
    Column("repaired_to", BigInteger, nullable=False, server_default="0"),
    # How many rows the last repair has opened again, and how many stay failed.
    Column("repaired", BigInteger, nullable=False, server_default="0"),
    Column("not_repaired", BigInteger, nullable=False, server_default="0"),
    Column("intake_owner", Text, nullable=False, default=""),
    Column("intake_until", BigInteger, nullable=False, default=0),
    Column("intake_epoch", BigInteger, nullable=False, default=0),
    Column("taken_at", BigInteger, nullable=False, default=0),
    # When the intake last found the end of its source: retention counts from there.
    Column("caught_up_at", BigInteger, nullable=False, default=0),
    # How far the schedule is whose requests are the rows of the job; null: it is the job of no schedule.
    Column("progress", Text),
    # How much of its source went before it was read, and what, for people; 0 and null: nothing, as far as is known.
    Column("missing", BigInteger, nullable=False, server_default="0"),
    Column("lacks", Text),
    # Which losses were accepted, when, by whom and why: a line for each.
    Column("accepted", Text, nullable=False, server_default=""),
    # The service that began the job, and publishes its end; empty: a version began it that knew no services.
    Column("service", Text, nullable=False, server_default=""),
)

SERVICES = Table(
    "delivery_service",
    METADATA,
    Column("id", Text, primary_key=True),
    # Whether it owns what names no service: the first service does.
    Column("takes_over", Boolean, nullable=False),
    # The event up to which its ends are published, the number of the last one as it was published, and that from which on what
    # is published is compared.
    Column("done", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("compared", BigInteger, nullable=False),
    # Where its run directory is in use, and how often it was renewed.
    Column("home", Text, nullable=False, server_default=""),
    Column("renewals", BigInteger, nullable=False, server_default="0"),
)

SOURCES = Table(
    "delivery_source",
    METADATA,
    Column("job", ForeignKey("delivery_job.id"), primary_key=True),
    Column("part", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    # Since when the file is not there any more; null: it is there, or the source has no files.
    Column("gone_at", BigInteger),
)

KEYS = Table(
    "delivery_key",
    METADATA,
    Column("receiver", String(60), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("is_announced", Boolean, nullable=False, server_default=false()),
    # The row whose failure holds the key; null: it is not held.
    Column("held_by", BigInteger),
    # The newest row that was delivered: an older one that is delivered afterwards is late.
    Column("delivered", BigInteger, nullable=False, server_default="0"),
    # The suspensions that its unit met since it last succeeded (`Refusals`); null: none.
    Column("refusals", Text),
)

ROWS = Table(
    "delivery_row",
    METADATA,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("receiver", String(60), nullable=False),
    Column("job", ForeignKey("delivery_job.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("dedup", Text, nullable=False),
    Column("notification_id", Text, nullable=False),
    Column("position", Text, nullable=False),
    Column("headers", LargeBinary, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("status", String(20), nullable=False),
    # Why it is in the status retry, and the step that is due.
    Column("mode", String(20)),
    Column("step", String(20), nullable=False),
    # The first open row of its key: the only one of the key that can be claimed.
    Column("is_head", Boolean, nullable=False),
    # When it is due; while it is claimed, when the claim ends.
    Column("due_at", BigInteger, nullable=False),
    Column("owner", Text),
    Column("epoch", BigInteger, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("questions", Integer, nullable=False, default=0),
    Column("error", Text),
    Column("is_late", Boolean, nullable=False, default=False),
    Column("taken_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    # How many of the last answers limited it, one after the other: its wait grows with them.
    Column("limits", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

ERRORS = Table(
    "delivery_error",
    METADATA,
    Column("row", BigInteger, primary_key=True),
    Column("job", ForeignKey("delivery_job.id"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("step", String(20), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),
)

GATES = Table(
    "delivery_gate",
    METADATA,
    Column("receiver", String(60), primary_key=True),
    Column("state", Text, nullable=False),
)

EVENTS = Table(
    "delivery_event",
    METADATA,
    Column("number", _Id, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("job", String(100), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("service", Text, nullable=False, server_default=""),
)

COUNTERS = Table(
    "delivery_counter",
    METADATA,
    Column("name", String(20), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

IS_HEAD: ColumnElement[bool] = literal_column("delivery_row.is_head")
IS_OPEN: ColumnElement[bool] = literal_column(f"delivery_row.{_OPEN}")
"""These say word for word what the indexes below say. With a parameter, or `is_head = 1`, SQLite would not use the indexes."""

Index(
    "delivery_key_held",
    KEYS.c.receiver,
    KEYS.c.held_by,
    postgresql_where=text("held_by is not null"),
    sqlite_where=text("held_by is not null"),
)
Index(
    "delivery_source_gone",
    SOURCES.c.gone_at,
    postgresql_where=text("gone_at is not null"),
    sqlite_where=text("gone_at is not null"),
)
# A claim looks at due heads only, so it costs the same beside any number of ended or waiting rows.
Index(
    "delivery_row_due",
    ROWS.c.receiver,
    ROWS.c.step,
    ROWS.c.due_at,
    postgresql_where=text("is_head"),
    sqlite_where=text("is_head"),
)
Index(
    "delivery_row_head",
    ROWS.c.receiver,
    ROWS.c.key,
    unique=True,
    postgresql_where=text("is_head"),
    sqlite_where=text("is_head"),
)
Index("delivery_row_open", ROWS.c.receiver, ROWS.c.key, ROWS.c.id, postgresql_where=text(_OPEN), sqlite_where=text(_OPEN))
# What has waited longest for a receiver.
Index("delivery_row_oldest", ROWS.c.receiver, ROWS.c.taken_at, postgresql_where=text(_OPEN), sqlite_where=text(_OPEN))
Index("delivery_row_running", ROWS.c.receiver, postgresql_where=text("owner is not null"), sqlite_where=text("owner is not null"))
Index("delivery_row_dedup", ROWS.c.job, ROWS.c.dedup, unique=True)
# Of each job alone: retention passes by the rows of open jobs.
Index(
    "delivery_row_ended",
    ROWS.c.job,
    ROWS.c.ended_at,
    postgresql_where=text("ended_at is not null"),
    sqlite_where=text("ended_at is not null"),
)
# Whether a key has no rows any more.
Index(
    "delivery_row_past",
    ROWS.c.receiver,
    ROWS.c.key,
    postgresql_where=text("ended_at is not null"),
    sqlite_where=text("ended_at is not null"),
)
Index("delivery_event_service", EVENTS.c.service, EVENTS.c.number)
Index("delivery_error_job", ERRORS.c.job, ERRORS.c.row)


_Each = TypeVar("_Each")
MOST = 5_000


def chunks(values: Sequence[_Each]) -> Iterator[Sequence[_Each]]:
    """Yield the values in parts of at most `MOST`; none for no values."""
    for first in range(0, len(values), MOST):
        yield values[first : first + MOST]
