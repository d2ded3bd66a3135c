"""The program and the configuration with which a service was started: what a rolling restart compares with those of now."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import msgspec

import guardian
import notification_service
import resequencer
import storage
from notification_service.configuration.configuration import Configuration
from notification_service.status.file import RunFile

_R = "payment-status-notification.resequencer"
MAY_DIFFER = frozenset(
    (
        *("ipf.processing-data.ingress.batch-size", "payment-status-notification.settings"),
        *("payment-status-notification.lookups.check-every", "payment-status-notification.logging.level"),
        *(f"{_R}.processing-timeout", f"{_R}.handling-threads", f"{_R}.handling-concurrency", f"{_R}.max-attempts"),
        *(f"{_R}.backoff-factor", f"{_R}.jitter-factor", f"{_R}.idle-timeout", f"{_R}.stash-timeout", f"{_R}.reorder-window"),
        *(f"{_R}.learned-timeout.at-least", f"{_R}.learned-timeout.at-most", f"{_R}.acknowledge-every", f"{_R}.retention"),
        *(f"{_R}.stash-limit.{each}" for each in ("envelopes-per-unit", "bytes-per-unit", "bytes-per-worker")),
    )
)
"""The keys of which two workers of one service may have different values for a while.

Where input, state and output are, how events are read and in which order they are handled must be the same for all: a partition
may come from a new worker to an old one. Secrets are masked, so they may differ, too.
"""


class Started(msgspec.Struct, frozen=True):
    """What the supervisor of a service wrote at its start. `values` are those that `check` prints, as JSON by key.

    `program` is another text after any file of the four packages was replaced, and with another Python.
    """

    service_process_id: int
    program: str
    values: Mapping[str, str]

    @classmethod
    def with_these(cls, configuration: Configuration) -> Self:
        """Return it for this process."""
        values = {each.path: json.dumps(each.value, ensure_ascii=False, sort_keys=True) for each in configuration.effective}
        return cls(os.getpid(), _program(), values)

    def differences(self, now: Self) -> Iterator[str]:
        """Yield a line for each key whose value every worker must have, and that was changed since."""
        for path in dict.fromkeys((*self.values, *now.values)):
            old, new = self.values.get(path, "not set"), now.values.get(path, "not set")
            if old != new and path not in MAY_DIFFER:
                yield f"{path} is {new}, and the service was started with {old}"


def started_file(run_directory: Path) -> RunFile[Started]:
    """Return the file with the start of the service that has this run directory."""
    return RunFile(run_directory, "started", Started)


def _program() -> str:
    digest = hashlib.sha256(f"{sys.executable} {sys.version}".encode())
    for package in (resequencer, guardian, storage, notification_service):
        root = Path(next(iter(package.__path__)))
        for file in sorted(each for each in root.rglob("*") if each.suffix != ".pyc" and each.is_file()):
            found = file.stat()
            digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
