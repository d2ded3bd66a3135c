"""What of the source of a job went before it was read, and which losses were accepted."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; as far as is known nothing is missing."""
    op.add_column("delivery_job", sa.Column("missing", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("delivery_job", sa.Column("lacks", sa.Text(), nullable=True))
    op.add_column("delivery_job", sa.Column("accepted", sa.Text(), server_default="", nullable=False))
