"""Why a release is not taken up."""

from pathlib import Path

from domain.errors import ResequencerError


class ReleaseRefused(ResequencerError):
    """It is damaged, half there, newer than this service, or being removed. Whoever has an older one keeps it."""

    def __init__(self, place: Path, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


class NoRelease(ResequencerError):
    """Nothing was published there yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: no release of lookups is there; `make lookups` (resequencer lookups build) makes one")


class PublishingRefused(ResequencerError):
    """Somebody else is publishing or rolling back at the moment, or nothing may be written there."""

    def __init__(self, directory: Path, problem: str) -> None:
        super().__init__(f"{directory}: {problem}")
