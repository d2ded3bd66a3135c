"""The errors of writing and reading an archive."""

from domain.errors import ResequencerError, TransientError


class ArchiveRefused(ResequencerError):
    """The archive or the topics cannot be used until an operator acts; the text names the problem and the remedy."""


class ArchiveUnavailable(TransientError):
    """The file system or the brokers failed. Repeating the call is safe; nothing half done is visible."""
