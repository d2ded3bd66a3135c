"""The attributes of a sink that an operator has set: a file in the run directory, which stays until it is removed."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from storage.private_file import make_private

_Value = str | int


class Change(msgspec.Struct, frozen=True):
    """The value that an attribute was set to. It counts as long as the configured one is the same as at that time."""

    configured: _Value
    value: _Value
    by: str
    at: str
    """The instant in ISO 8601, UTC."""


SetAttributes = Mapping[str, Change]
"""Changes by the names of the attributes."""


class SinkAttributesFile:
    """The file of the sink of MQTT. All workers of the service read it."""

    def __init__(self, run_directory: Path) -> None:
        self.path = run_directory / "sink-mqtt.json"

    def find(self) -> SetAttributes | None:
        """Return what was set; None if nothing was.

        Raises:
            OSError, msgspec.MsgspecError, UnicodeDecodeError: The file cannot be read, or is damaged.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, Change])
        except FileNotFoundError:
            return None

    def write(self, attributes: SetAttributes) -> None:
        """Replace the file durably: after a return also a power cut leaves it.

        Raises:
            OSError: It cannot be written; the earlier one is unchanged.
        """
        fresh = self.path.with_suffix(".json.new")
        try:
            with make_private(fresh).open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(attributes), indent=2) + b"\n")
                os.fsync(file.fileno())
            os.replace(fresh, self.path)
        except OSError:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        self._sync_directory()

    def remove(self) -> bool:
        """Remove the file durably, and return whether there was one.

        Raises:
            OSError: It cannot be removed.
        """
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        self._sync_directory()
        return True

    def _sync_directory(self) -> None:
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
