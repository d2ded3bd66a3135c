"""Finds the files of `conf/` that are installed with the service, if the working directory has none of its own."""

from pathlib import Path

_SHIPPED = Path(__file__).parents[1] / "conf"
"""A link to the checkout's `conf/`; in a wheel, its files."""


def find_shipped(path: Path) -> Path:
    """Return `path`; if it is `conf/…` and does not exist here, the file of that name that is installed with the service."""
    try:
        if path.parent != Path("conf") or path.exists():
            return path
    except PermissionError:
        return path  # The caller, which reads the file, reports that it is missing.
    installed = _SHIPPED / path.name
    return installed if installed.is_file() else path


def read_reference() -> str:
    """Return the text of reference.conf of the installed version."""
    return (_SHIPPED / "reference.conf").read_text(encoding="utf-8")


def read_keys_of_reference() -> str:
    """Return reference.conf without its comments. To parse these takes three times as long as to parse its keys: 0.1 s."""
    return "".join(line for line in read_reference().splitlines(keepends=True) if not line.lstrip().startswith("#"))
