"""The one place where the operating system's errors become the transport's."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connectors.port import TransportRefused, TransportUnavailable

_NEEDS_A_PERSON = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what the port promises instead of an OSError about `path`.

    Rights and wrong kinds of file wait for a person (TransportRefused); a full, failing or missing disk may go away by
    itself (TransportUnavailable).
    """
    try:
        yield
    except _NEEDS_A_PERSON as error:
        raise TransportRefused(str(path), f"{_text(error)}. Make it readable and writable for the service") from error
    except OSError as error:
        raise TransportUnavailable(f"{path}: {_text(error)}") from error


def _text(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, 'OSError')}: {error.strerror or error}"
