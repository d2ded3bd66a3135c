"""The files of `conf/` that come with the service, for where the working directory has none of its own."""

from pathlib import Path

_SHIPPED = Path(__file__).parents[2] / "conf"
"""Beside this package; by name, a directory `conf` of an operator would be found first."""


def find_shipped(path: Path) -> Path:
    """`path` as it is; but where `conf/…` does not exist here, the file of that name that was installed with the service."""
    try:
        if path.parent != Path("conf") or path.exists():
            return path
    except PermissionError:
        return path  # The reader of the file reports it.
    installed = _SHIPPED / path.name
    return installed if installed.is_file() else path


def read_reference() -> str:
    """The text of reference.conf, which always is that of the installed version."""
    return (_SHIPPED / "reference.conf").read_text(encoding="utf-8")
