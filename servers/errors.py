"""What can keep a server from running. Each says what to do."""

from collections.abc import Sequence
from pathlib import Path


class ServersError(Exception):
    """Any of the failures below; its text is meant for whoever asked for the servers."""


class ProgramMissing(ServersError):
    """A program that the servers need is not there, or is too old."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")


class JarsMissing(ServersError):
    """Maven could not bring a server's jars."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        reason = "\n  ".join(words)
        super().__init__(
            f"Maven could not fetch the jars of {name}. Maven Central, or a mirror named in ~/.m2/settings.xml, must be in reach "
            f"once; afterwards they are kept. Maven says:\n  {reason}"
        )


class StartFailed(ServersError):
    """The server ended by itself, or did not answer in time. `log` is where it says more."""

    def __init__(self, name: str, reason: str, log: Path, words: Sequence[str]) -> None:
        self.log = log
        said = "".join(f"\n  {word}" for word in words)
        super().__init__(f"{name} {reason}; from {log}:{said}" if said else f"{name} {reason}; its log is {log}")


class NotRunning(ServersError):
    """Somebody wants to signal a server that does not run."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(f"{name} in {directory} does not run; start it first")
