"""The attributes of a sink that an operator has set: a file in the run directory, which stays until it is removed."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from notification_service.status.file import RunFile
from resequencer.printable import without_secrets
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


class ShownAttribute(msgspec.Struct, frozen=True):
    """An attribute in force, what is configured, and who set it when (ISO 8601, UTC); null while it is as configured."""

    name: str
    value: _Value
    configured: _Value
    by: str | None
    at: str | None
    expects: str


def changes_text(given: Mapping[str, str]) -> str:
    """Return what is to be set, for the audit log: a server is named without a login."""
    return ", ".join(f"{name} = {without_secrets(text)}" for name, text in given.items())


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

    With `to_initial` the region goes back to its initial state, for the reason `because`; `approved_by` is the second person,
    where one is needed. With `is_dry_run` the worker only says what that would do. A proposal is such an order that waits for a
    second person; `at` is when it was made (ISO 8601, UTC).
    """

    service_process_id: int
    id: str
    by: str
    is_forced: bool = False
    to_initial: bool = False
    is_dry_run: bool = False
    because: str = ""
    approved_by: str | None = None
    at: str = ""


class RegionOrderFile(RunFile[RegionOrder]):
    """The order for the worker in this slot. A newer order replaces one that the worker has not read yet."""

    def __init__(self, run_directory: Path, slot: int) -> None:
        super().__init__(run_directory, f"region-order-{slot}", RegionOrder)
        self._taken = self._path.with_suffix(".taken")

    def give(self, order: RegionOrder) -> None:
        """Write the order durably.

        Raises:
            OSError: It cannot be written.
        """
        replace_durably(self._path, msgspec.json.encode(order), order.id)

    @property
    def is_unread(self) -> bool:
        """Whether there is an order that the worker has not read yet."""
        return self._path.exists()

    def take(self, service_process_id: int) -> RegionOrder | None:
        """Return the order of this service and remove the file; None if there is none.

        It is removed before it is executed. A worker that dies in between begins again all the same, as a reset does. But an
        order for the initial state stays beside, until `end` is called: it has several steps.
        """
        read = self._path.with_suffix(".read")
        try:
            os.replace(self._path, read)  # A newer order may be written at any moment, and must not be removed unread.
        except OSError:
            return None
        found = self._find(read, service_process_id)
        with suppress(OSError):
            os.replace(read, self._taken) if found is not None and _has_steps(found) else read.unlink()
        return found

    def find_begun(self) -> RegionOrder | None:
        """Return the order for the initial state that a worker took and did not end; None if there is none.

        Whichever service it was for, it is continued.
        """
        try:
            found = msgspec.json.decode(self._taken.read_bytes(), type=RegionOrder)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found if _has_steps(found) else None

    def end(self) -> None:
        """Note that the order which was taken last is executed or refused."""
        with suppress(OSError):
            self._taken.unlink()


def _has_steps(order: RegionOrder) -> bool:
    return order.to_initial and not order.is_dry_run


class RegionProposalFile(RunFile[RegionOrder]):
    """The reset to the initial state of this slot's region that waits for a second person. A newer one replaces it."""

    def __init__(self, run_directory: Path, slot: int) -> None:
        super().__init__(run_directory, f"region-order-{slot}-proposed", RegionOrder)

    def give(self, order: RegionOrder) -> None:
        """Write the proposal durably. Raises: as `RegionOrderFile.give`."""
        replace_durably(self._path, msgspec.json.encode(order), order.id)
