"""The errors of writing and reading an archive."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resequencer.errors import ResequencerError, TransientError


class ArchiveRefused(ResequencerError):
    """The archive or the topics cannot be used until an operator acts; the text names the problem and the remedy."""


class ArchiveUnavailable(TransientError):
    """The file system or the brokers failed. Repeating the call is safe; nothing half done is visible."""


@contextmanager
def translated(location: Path) -> Iterator[None]:
    """Translate what goes wrong while the archive at this path is read without Spark."""
    try:
        yield
    except ImportError as error:
        raise ArchiveUnavailable("the archive is Parquet, and pyarrow is not installed: `make audit` installs it") from error
    except ValueError as error:
        raise ArchiveRefused(f"{location}: a file is damaged ({error}); restore it from a copy") from error
    except OSError as error:
        raise ArchiveUnavailable(f"{location}: {error}") from error
