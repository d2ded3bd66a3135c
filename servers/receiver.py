"""The receiver as a server that is started, killed and paused like the others."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from notification_service.simulator.receiver.behaviour import Behaviour
from servers.server import DATA, LOOPBACK, Server

_ANSWER_SECONDS, _CLIENT_SECONDS = 2, 60
_CHECKOUT = Path(__file__).resolve().parents[1]


class ReceiverServer(Server):
    """A `Server`. After a restart it behaves as its settings say again; what it took, it knows."""

    name: ClassVar[str] = "receiver"
    port_names: ClassVar[Sequence[str]] = ("receiver",)

    def __init__(self, directory: Path, settings: Behaviour | None = None, wanted: Mapping[str, int] | None = None) -> None:
        super().__init__(directory, wanted)
        self.settings = settings or Behaviour()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['receiver']}"

    @property
    def data(self) -> Path:
        """The directory of `taken.jsonl` and `units.jsonl`, for `check`."""
        return self.directory / DATA

    def behave(self, **changes: object) -> None:
        """Change the behaviour; windows count from now. Names as in `Behaviour`, values as `Behaviour.changed` takes them.

        Raises:
            httpx.HTTPError: No answer, or the change was refused.
        """
        settings = {name.replace("_", "-"): value for name, value in changes.items()}
        httpx.put(f"{self.url}/_behaviour", json=settings, timeout=_CLIENT_SECONDS, trust_env=False).raise_for_status()

    def counts(self, seconds: float = _CLIENT_SECONDS) -> Mapping[str, Any]:
        """Return what it did since its start, as `Receiver.counts`; wait so long for its answer.

        Raises:
            httpx.HTTPError: No answer.
        """
        answer = httpx.get(f"{self.url}/_counts", timeout=seconds, trust_env=False).raise_for_status()
        counts: dict[str, Any] = answer.json()
        return counts

    def is_ready(self) -> bool:
        try:
            self.counts(_ANSWER_SECONDS)
        except httpx.HTTPError:
            return False
        return True

    def _prepared(self) -> tuple[Sequence[str], Mapping[str, str]]:
        places = (f"--directory={self.data}", f"--port={self.ports['receiver']}")
        command = [sys.executable, "-m", "notification_service.simulator.receiver", *places, *self.settings.as_options()]
        return command, os.environ | {"PYTHONPATH": str(_CHECKOUT)}
