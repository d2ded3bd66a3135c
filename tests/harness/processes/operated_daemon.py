"""The service as an operator runs it in the background: the commands start and stop it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness.processes.daemon_guard import end_with_this_process
from harness.processes.operated_service import OperatedService
from harness.waiting import wait_until

from notification_service.status.file import StatusFile
from notification_service.status.report import State, StatusReport


class Daemon:
    """A service that the commands start and stop. It ends with the process that started it."""

    def __init__(self, service: OperatedService) -> None:
        self.service = service
        self.log_file = service.run_directory / "service.log"

    def start(self) -> None:
        end_with_this_process(self.service.run_directory)
        started = self.service.verb("start")
        assert started.returncode == 0, started.stderr

    @property
    def report(self) -> StatusReport | None:
        return StatusFile(self.service.run_directory).find()

    @property
    def supervisor(self) -> int:
        return int((self.service.run_directory / "lock").read_text())

    @property
    def worker(self) -> int | None:
        """The supervisor's only child."""
        children = Path(f"/proc/{self.supervisor}/task/{self.supervisor}/children").read_text().split()
        return int(children[0]) if children else None

    def find_worker(self, slot: int, verb: str = "run") -> int | None:
        """Return the worker process in the slot; None while it is being restarted. Aggregation workers have the verb `groups`."""
        for child in Path(f"/proc/{self.supervisor}/task/{self.supervisor}/children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                is_wanted = b"--slot" in command and command[command.index(b"notification_service") + 1] == verb.encode()
                if is_wanted and int(command[command.index(b"--slot") + 1]) == slot:
                    return int(child)
        return None

    def wait_for(self, is_so: Callable[[StatusReport], bool], what: str) -> None:
        wait_until(lambda: self.report is not None and is_so(self.report), what)

    def wait_for_another_worker(self, than: int | None) -> int:
        """Wait until another worker is ready; before it began, its supervisor reported that the service was not ready."""

        def find() -> int | None:
            worker = self.worker
            return worker if worker not in (None, than) and self.is_ready() else None

        found = wait_until(find, "another worker is ready")
        assert found is not None
        return found

    def is_ready(self) -> bool:
        return self.report is not None and self.report.state is State.READY


def has_ended(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
