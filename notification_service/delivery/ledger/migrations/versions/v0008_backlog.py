"""An index leads to what has waited longest for a receiver."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_OPEN = sa.text("status not in ('processed', 'rejected', 'failed', 'cancelled')")


def upgrade() -> None:
    """Create the index."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("set local statement_timeout = 0")  # An index over millions of rows takes longer than a minute.
    op.create_index("delivery_row_oldest", "delivery_row", ["receiver", "taken_at"], postgresql_where=_OPEN, sqlite_where=_OPEN)
