"""The roles of users."""

from enum import StrEnum


class Role(StrEnum):
    """What a user may do. `operator` may all that `viewer` may."""

    VIEWER = "viewer"
    """See everything except payment data."""
    OPERATOR = "operator"
    """Change something: requeue, discard or edit dead letters, restart a worker, give orders."""
    PAYMENTS = "payments"
    """See payment data."""
