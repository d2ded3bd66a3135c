"""The order to reset the region of one worker: a file in the run directory, which the worker takes away when it reads it."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from notification_service.status.run_file import RunFile
from storage.private_file import make_private


class RegionOrder(msgspec.Struct, frozen=True):
    """Reset the region of a worker. `by` gave the order; the worker's report names its `id` when it has obeyed or refused it.

    `service_process_id` is the supervisor's. An order for an earlier service is never obeyed.
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
        fresh = self._path.with_name(f"{self._path.name}.{order.id}")
        try:
            with make_private(fresh).open("wb") as file:
                file.write(msgspec.json.encode(order))
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except OSError:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise

    def take(self, service_process_id: int) -> RegionOrder | None:
        """Return the order of this service and remove the file; None if there is none.

        It is removed before it is obeyed. A worker that dies in between begins anew all the same, as a reset does.
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
