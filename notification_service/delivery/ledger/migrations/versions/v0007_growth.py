"""Retention looks at the ended rows of one job after the other; positions know since when their file is gone."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_ENDED, _GONE = sa.text("ended_at is not null"), sa.text("gone_at is not null")


def upgrade() -> None:
    """Change the index of ended rows, and add the column."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("set local statement_timeout = 0")  # An index over millions of rows takes longer than a minute.
    op.drop_index("delivery_row_ended", "delivery_row")
    op.create_index(
        "delivery_row_ended", "delivery_row", ["job", "ended_at"], unique=False, postgresql_where=_ENDED, sqlite_where=_ENDED
    )
    op.add_column("delivery_source", sa.Column("gone_at", sa.BigInteger(), nullable=True))
    op.create_index("delivery_source_gone", "delivery_source", ["gone_at"], postgresql_where=_GONE, sqlite_where=_GONE)
