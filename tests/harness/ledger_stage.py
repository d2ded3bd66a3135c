"""A ledger with a clock that a test sets, and shortcuts for what delivery workers do with it."""

from collections.abc import Sequence
from time import monotonic_ns, time_ns
from typing import Any

from notification_service.delivery.core.answers import Done, Outcome
from notification_service.delivery.core.jobs import Claim, Item
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import ClaimResult, Finished
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.ledger.services import Service
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import SteadyClock

RETENTION_MS = 1_000_000


def open_database(url: str) -> Database:
    """Return a database with the clock of this machine, or of its server."""
    return Database(url, SteadyClock(lambda: time_ns() // 1_000_000, lambda: monotonic_ns() // 1_000_000))


class LedgerStage:
    """A ledger with one receiver `r`. `now` is the instant of its clock, which is `ahead` of the time that passes.

    A jump of it is believed at once, unless it must be trusted for `trusted_ms`.
    """

    def __init__(self, url: str, settings: Receiver) -> None:
        self.now = 1_000_000_000
        self.ahead = 0
        self.trusted_ms = 0
        self.url = url
        self.receiver = settings
        self._made: list[Ledger] = []
        self.ledger = self.another()

    def another(self, settings: Receiver | None = None, service: Service = Service()) -> Ledger:  # noqa: B008
        """Return a ledger on the same database, as another process, perhaps of another service, has it."""
        receivers = [("r", settings or self.receiver)]
        clock = SteadyClock(lambda: self.now + self.ahead, lambda: self.now, trusted_ms=self.trusted_ms)
        self._made.append(Ledger(Database(self.url, clock, asks_server=False), receivers, RETENTION_MS, 60_000, service))
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
