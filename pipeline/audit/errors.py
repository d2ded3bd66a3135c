"""Why an audit says nothing."""

from domain.errors import ResequencerError


class AuditRefused(ResequencerError):
    """What is there is not enough to judge by: what is missing and the remedy are in the text."""
