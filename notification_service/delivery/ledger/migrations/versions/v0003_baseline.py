"""The tables of the baseline (docs/decisions/0049-the-baseline.md), which had this number."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy import text

revision = "0003"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "delivery_counter",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "delivery_event",
        sa.Column("number", _ID, autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("job", sa.String(length=100), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "delivery_gate",
        sa.Column("receiver", sa.String(length=60), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("receiver"),
    )
    op.create_table(
        "delivery_job",
        sa.Column("id", sa.String(length=100), nullable=False),
        sa.Column("receiver", sa.String(length=60), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("is_live", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("read", sa.BigInteger(), nullable=False),
        sa.Column("duplicates", sa.BigInteger(), nullable=False),
        sa.Column("not_selected", sa.BigInteger(), nullable=False),
        sa.Column("ingested", sa.BigInteger(), nullable=False),
        sa.Column("processed", sa.BigInteger(), nullable=False),
        sa.Column("rejected", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("cancelled", sa.BigInteger(), nullable=False),
        sa.Column("suspensions", sa.BigInteger(), nullable=False),
        sa.Column("verifications", sa.BigInteger(), nullable=False),
        sa.Column("back_offs", sa.BigInteger(), nullable=False),
        sa.Column("limits", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("refused_results", sa.BigInteger(), nullable=False),
        sa.Column("sealed_at", sa.BigInteger(), nullable=True),
        sa.Column("expected", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("completions", sa.Integer(), nullable=False),
        sa.Column("cancelled_at", sa.BigInteger(), nullable=True),
        sa.Column("repair", sa.String(length=20), nullable=True),
        sa.Column("repaired_to", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("repaired", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("not_repaired", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("intake_owner", sa.Text(), nullable=False),
        sa.Column("intake_until", sa.BigInteger(), nullable=False),
        sa.Column("intake_epoch", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.Column("caught_up_at", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "delivery_key",
        sa.Column("receiver", sa.String(length=60), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("is_announced", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("held_by", sa.BigInteger(), nullable=True),
        sa.Column("delivered", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("receiver", "key"),
    )
    op.create_index(
        "delivery_key_held",
        "delivery_key",
        ["receiver", "held_by"],
        unique=False,
        postgresql_where=text("held_by is not null"),
        sqlite_where=text("held_by is not null"),
    )
    op.create_table(
        "delivery_error",
        sa.Column("row", sa.BigInteger(), nullable=False),
        sa.Column("job", sa.String(length=100), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.String(length=20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["delivery_job.id"],
        ),
        sa.PrimaryKeyConstraint("row"),
    )
    op.create_index("delivery_error_job", "delivery_error", ["job", "row"], unique=False)
    op.create_table(
        "delivery_row",
        sa.Column("id", _ID, autoincrement=True, nullable=False),
        sa.Column("receiver", sa.String(length=60), nullable=False),
        sa.Column("job", sa.String(length=100), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("dedup", sa.Text(), nullable=False),
        sa.Column("notification_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.Column("headers", sa.LargeBinary(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("mode", sa.String(length=20), nullable=True),
        sa.Column("step", sa.String(length=20), nullable=False),
        sa.Column("is_head", sa.Boolean(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("questions", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("is_late", sa.Boolean(), nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job"],
            ["delivery_job.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("delivery_row_dedup", "delivery_row", ["job", "dedup"], unique=True)
    op.create_index(
        "delivery_row_due",
        "delivery_row",
        ["receiver", "step", "due_at"],
        unique=False,
        postgresql_where=text("is_head"),
        sqlite_where=text("is_head"),
    )
    op.create_index(
        "delivery_row_ended",
        "delivery_row",
        ["ended_at"],
        unique=False,
        postgresql_where=text("ended_at is not null"),
        sqlite_where=text("ended_at is not null"),
    )
    op.create_index(
        "delivery_row_head",
        "delivery_row",
        ["receiver", "key"],
        unique=True,
        postgresql_where=text("is_head"),
        sqlite_where=text("is_head"),
    )
    op.create_index(
        "delivery_row_open",
        "delivery_row",
        ["receiver", "key", "id"],
        unique=False,
        postgresql_where=text("status not in ('processed', 'rejected', 'failed', 'cancelled')"),
        sqlite_where=text("status not in ('processed', 'rejected', 'failed', 'cancelled')"),
    )
    op.create_index(
        "delivery_row_past",
        "delivery_row",
        ["receiver", "key"],
        unique=False,
        postgresql_where=text("ended_at is not null"),
        sqlite_where=text("ended_at is not null"),
    )
    op.create_index(
        "delivery_row_running",
        "delivery_row",
        ["receiver"],
        unique=False,
        postgresql_where=text("owner is not null"),
        sqlite_where=text("owner is not null"),
    )
    op.create_table(
        "delivery_source",
        sa.Column("job", sa.String(length=100), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"],
            ["delivery_job.id"],
        ),
        sa.PrimaryKeyConstraint("job", "part"),
    )
