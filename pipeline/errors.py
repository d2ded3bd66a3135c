"""Why a job publishes nothing."""

from domain.errors import ResequencerError


class JobRefused(ResequencerError):
    """What was read is not fit to be published: the source or table, the value, the threshold and the remedy are in the text."""


class NotShared(ResequencerError):
    """What the tasks of a cluster have written is not, or not all, where this process looks for it."""

    def __init__(self, place: str, written: int, found: int) -> None:
        super().__init__(
            f"{place}: tasks have written {written:,} rows, of which {found:,} are there: a machine of the cluster has another "
            "directory under this path; let all machines share it, or run the job on this one alone (--master 'local[*]')"
        )
