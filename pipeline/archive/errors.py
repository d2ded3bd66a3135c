"""Why an archive is not written or not read."""

from domain.errors import ResequencerError, TransientError


class ArchiveRefused(ResequencerError):
    """What is there cannot be used: what it is and the remedy are in the text."""


class ArchiveUnavailable(TransientError):
    """The file system or the brokers failed. Nothing is lost by trying the same again; nothing half done can be seen."""
