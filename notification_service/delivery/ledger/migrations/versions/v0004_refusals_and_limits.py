"""The suspensions that a unit alone meets, and the answers that limit a row again and again."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns: of the units and rows that are there nothing is known yet."""
    op.add_column("delivery_key", sa.Column("refusals", sa.Text(), nullable=True))
    op.add_column("delivery_row", sa.Column("limits", sa.Integer(), server_default="0", nullable=False))
