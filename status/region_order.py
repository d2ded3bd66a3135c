"""The order to reset a region, as the file in the run directory by which it reaches the worker."""

from pathlib import Path

import msgspec

from status.run_file import RunFile


class RegionOrder(msgspec.Struct, frozen=True):
    """An order for the worker `worker_process_id` of the service `service_process_id`; a later worker does not obey it.

    `id` is random, `by` the user who gave it, `given_at` an instant in ISO 8601 (UTC). `is_forced`: also while the region runs.
    """

    service_process_id: int
    worker_process_id: int
    id: str
    by: str
    given_at: str
    is_forced: bool


class RegionOrderFile(RunFile[RegionOrder]):
    """`region-reset-K.json` for the worker in slot K. The last order counts; the worker removes the file before it obeys."""

    def __init__(self, run_directory: Path, slot: int) -> None:
        super().__init__(run_directory, f"region-reset-{slot}", RegionOrder)
