"""The errors of starting and stopping servers. Each text says what to do."""

from collections.abc import Sequence
from pathlib import Path


class ServersError(Exception):
    """The base of the errors below; the text is meant for the user who started the servers."""


class ProgramMissing(ServersError):
    """A program that the servers need is missing, or too old."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")


class StartFailed(ServersError):
    """The server ended by itself, or did not answer in time. `log` is its log file."""

    def __init__(self, name: str, reason: str, log: Path, words: Sequence[str]) -> None:
        self.log = log
        said = "".join(f"\n  {word}" for word in words)
        super().__init__(f"{name} {reason}; from {log}:{said}" if said else f"{name} {reason}; its log is {log}")


class NotRunning(ServersError):
    """A signal was requested for a server that does not run."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(f"{name} in {directory} does not run; start it first")
