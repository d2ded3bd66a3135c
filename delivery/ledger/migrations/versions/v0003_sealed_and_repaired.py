"""How many rows a sealed job has, and how far the repair of a job is."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns. Jobs that are sealed already have all their rows."""
    op.add_column("delivery_job", sa.Column("expected", sa.BigInteger(), nullable=True))
    op.add_column("delivery_job", sa.Column("repair", sa.String(length=20), nullable=True))
    for name in ("repaired_to", "repaired", "not_repaired"):
        op.add_column("delivery_job", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("update delivery_job set expected = ingested where sealed_at is not null")
