"""The errors of releases."""

from pathlib import Path

from resequencer.errors import ResequencerError


class ReleaseRefused(ResequencerError):
    """The release is damaged, incomplete, newer than this service, or being removed. A worker keeps the release that it has."""

    def __init__(self, place: Path, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


class NoRelease(ResequencerError):
    """No release was published in the directory yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: no release of lookups exists; build one with `make lookups` (resequencer lookups build)")


class PublishingRefused(ResequencerError):
    """Another process is publishing or rolling back at the moment, or the directory cannot be written."""

    def __init__(self, directory: Path, problem: str) -> None:
        super().__init__(f"{directory}: {problem}")
