"""A ledger with a clock that a test sets, and shortcuts for what delivery workers do with it."""

from collections.abc import Sequence
from typing import Any

from delivery.core.answers import Done, Outcome
from delivery.core.rows import Claim, Item
from delivery.ledger.database import Database
from delivery.ledger.finishing import ClaimResult, Finished
from delivery.ledger.intake import Portion
from delivery.ledger.ledger import Ledger
from delivery.settings import Receiver, Step

RETENTION_MS = 1_000_000


class LedgerStage:
    """A ledger with one receiver `r`. `now` is the instant of its clock."""

    def __init__(self, url: str, settings: Receiver) -> None:
        self.now = 1_000_000_000
        self.url = url
        self.receiver = settings
        self._made: list[Ledger] = []
        self.ledger = self.another()

    def another(self, settings: Receiver | None = None) -> Ledger:
        """Return a ledger on the same database, as another process has it."""
        receivers = [("r", settings or self.receiver)]
        self._made.append(Ledger(Database(self.url, lambda: self.now), receivers, RETENTION_MS, 60_000))
        return self._made[-1]

    def close(self) -> None:
        for each in self._made:
            each.close()

    def take(self, *items: Item, job: str = "j", seals: bool = True, position: int = 0) -> int:
        """Start the job if there is none, and take the items in; the job is sealed then."""
        self.ledger.start_job(job, "r", "s", "ann")
        intake = self.ledger.open_intake(job, "w1")
        assert intake is not None
        return self.ledger.take_in(intake, "r", Portion(items, {"p": position or len(items)}, seals=seals, is_end=True))

    def claim(self, owner: str = "w1", wanted: int = 50, step: Step = Step.DELIVER) -> list[Claim]:
        return self.ledger.claim("r", step, owner, wanted).claims

    def finish(self, claims: Sequence[Claim], outcome: Outcome = Done()) -> Finished:  # noqa: B008 - It never changes.
        return self.ledger.finish("r", [ClaimResult(each, outcome) for each in claims])

    def deliver_all(self) -> list[str]:
        """Deliver what can be delivered; return the notification ids in the order of their calls."""
        called = []
        while claims := self.claim():
            called += [each.notification_id for each in claims]
            self.finish(claims)
        return called

    def job(self, name: str = "j") -> Any:
        return self.ledger.find_job(name)


def item(key: str, number: int, **other: Any) -> Item:
    identifier = f"{key}-{number}"
    return Item(identifier, key, b"{}", (("a", b"\xff"),), f"p@{number}", identifier, **other)
