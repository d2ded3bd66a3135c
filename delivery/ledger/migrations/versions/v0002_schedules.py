"""The progress of schedules."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column."""
    op.add_column("delivery_job", sa.Column("progress", sa.Text(), nullable=True))
