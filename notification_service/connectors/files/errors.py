"""Translates errors of the operating system into those of the transport; the only place that does."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guardian.ports import TransportRefused, TransportUnavailable

_NEEDS_A_PERSON = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise the port's errors instead of an OSError about `path`.

    Missing rights and wrong kinds of file need an operator (TransportRefused). A full, failing or missing disk may recover by
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
