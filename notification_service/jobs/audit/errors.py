"""The error of an audit that cannot give a verdict."""

from resequencer.errors import ResequencerError


class AuditRefused(ResequencerError):
    """The data is not sufficient for a verdict; the text names what is missing, and the remedy."""
