"""The services that share the ledger, and which of them owns a job.

What was there before belongs to none of them yet; the first service that uses these tables takes it over.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table of services, and let jobs and events name theirs."""
    op.create_table(
        "delivery_service",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("takes_over", sa.Boolean(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("compared", sa.BigInteger(), nullable=False),
        sa.Column("home", sa.Text(), server_default="", nullable=False),
        sa.Column("renewals", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.add_column("delivery_job", sa.Column("service", sa.Text(), server_default="", nullable=False))
    op.add_column("delivery_event", sa.Column("service", sa.Text(), server_default="", nullable=False))
    op.create_index("delivery_event_service", "delivery_event", ["service", "number"], unique=False)
