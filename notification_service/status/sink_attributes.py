"""The attributes of a sink that an operator has set: a file in the run directory, which stays until it is removed."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from notification_service.status.file import RunFile
from storage.private_file import replace_durably, sync_directory

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
        replace_durably(self.path, msgspec.json.format(msgspec.json.encode(attributes), indent=2) + b"\n")

    def remove(self) -> bool:
        """Remove the file durably, and return whether there was one.

        Raises:
            OSError: It cannot be removed.
        """
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        sync_directory(self.path.parent)
        return True


class RegionOrder(msgspec.Struct, frozen=True):
    """Reset the region of a worker. `by` gave the order; the worker's report names its `id` when it has executed or refused it.

    `service_process_id` is the supervisor's. An order for an earlier service is never executed.
    """

    service_process_id: int
    id: str
    by: str
    is_forced: bool


class RegionOrderFile(RunFile[RegionOrder]):
    """The order for the worker in this slot. A newer order replaces one that the worker has not read yet."""

    def __init__(self, run_directory: Path, slot: int) -> None:
        super().__init__(run_directory, f"region-order-{slot}", RegionOrder)

    def give(self, order: RegionOrder) -> None:
        """Write the order durably.

        Raises:
            OSError: It cannot be written.
        """
        replace_durably(self._path, msgspec.json.encode(order), order.id)

    def take(self, service_process_id: int) -> RegionOrder | None:
        """Return the order of this service and remove the file; None if there is none.

        It is removed before it is executed. A worker that dies in between begins again all the same, as a reset does.
        """
        taken = self._path.with_suffix(".taken")
        try:
            os.replace(self._path, taken)  # A newer order may be written at any moment, and must not be removed unread.
        except OSError:
            return None
        found = self._find(taken, service_process_id)
        with suppress(OSError):
            taken.unlink()
        return found
