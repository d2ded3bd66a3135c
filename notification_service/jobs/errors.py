"""The errors of jobs, and of reading what they have written."""

from resequencer.errors import ResequencerError, TransientError


class JobRefused(ResequencerError):
    """The data is not fit to be published; the text names the source or table, the value, the threshold and the remedy."""


class NotShared(ResequencerError):
    """Rows that tasks of a cluster have written are missing where this process looks for them."""

    def __init__(self, place: str, written: int, found: int) -> None:
        super().__init__(
            f"{place}: tasks have written {written:,} row{'' if written == 1 else 's'}, of which {found:,} can be read here: a "
            "machine of the cluster has another directory under this path; let all machines share it, or run the job on this "
            "machine alone (--master 'local[*]')"
        )


class AuditRefused(ResequencerError):
    """The data is not sufficient for a verdict; the text names what is missing, and the remedy."""


class ArchiveRefused(ResequencerError):
    """The archive or the topics cannot be used until an operator acts; the text names the problem and the remedy."""


class ArchiveUnavailable(TransientError):
    """The file system or the brokers failed. Repeating the call is safe; nothing half done is visible."""
