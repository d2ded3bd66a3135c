"""The services that share a ledger: each owns the jobs that it has begun, and publishes the ends of these alone."""

from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import Connection, RowMapping, func, select, update

from notification_service.delivery.core.jobs import JobEvent
from notification_service.delivery.core.published_events import PublishedMark
from notification_service.delivery.errors import RunDirectoryCopied
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.job_rows import find_published_before, ledger_id, lock_counter
from notification_service.delivery.ledger.tables import EVENTS, JOBS, SERVICES, chunks
from resequencer.clock import Instant, Unchanged

LEASE_MS = 30_000
"""So long another run directory with the same id must not have shown itself, before this one takes its place."""

RENEWED_MS = 10_000
"""How often a service shows itself."""


class Service(msgspec.Struct, frozen=True):
    """A service as its ledger knows it. `home` is where the one run directory is that has this id, None: it has several."""

    id: str = ""
    home: str | None = None


def enter(database: Database, service: Service, homes: Unchanged) -> None:
    """Note the service, and that its run directory is in use at its home; to be called every `RENEWED_MS`.

    The first service of a ledger takes over the jobs and the events of the versions that knew no services.

    Raises:
        RunDirectoryCopied: Another run directory with the same id is in use.
    """
    with database.write() as connection:
        is_new = _make(connection, service.id)
        asked = select(SERVICES).where(SERVICES.c.id == service.id).with_for_update()
        found = connection.execute(asked).mappings().one()
        if found["takes_over"] and service.id:
            _take_over(connection, found, is_late=not is_new)
        if service.home is None:
            return
        is_other = found["home"] not in ("", service.home)
        if is_other and homes.for_ms(service.id, (found["home"], found["renewals"])) < LEASE_MS:
            raise RunDirectoryCopied(service.id, service.home, found["home"])
        renewed = {"home": service.home, "renewals": SERVICES.c.renewals + 1}
        connection.execute(update(SERVICES).where(SERVICES.c.id == service.id).values(**renewed))


def _take_over(connection: Connection, service: RowMapping, *, is_late: bool) -> None:
    """Own what names no service. A version that knows none may run beside this one, and end jobs."""
    ended = connection.scalar(select(func.min(EVENTS.c.number)).where(EVENTS.c.service == ""))
    for table in (JOBS, EVENTS):
        connection.execute(update(table).where(table.c.service == "").values(service=service["id"]))
    if is_late and ended is not None and ended <= service["done"]:
        # It comes late: what is published is compared with all from there on.
        connection.execute(update(SERVICES).where(SERVICES.c.id == service["id"]).values(done=ended - 1, compared=0))


def _make(connection: Connection, service: str) -> bool:
    """Note a service that is not known yet; return whether it was not."""
    known = select(SERVICES.c.id).where(SERVICES.c.id == service)
    if connection.scalar(known) is not None:
        return False
    ledger_id(connection)
    lock_counter(connection)  # Of those that are noted at once one is the first.
    if connection.scalar(known) is not None:
        return False
    is_first = not connection.scalar(select(func.count()).select_from(SERVICES))
    number = find_published_before(connection) if is_first else 0
    values = {"id": service, "takes_over": is_first, "done": number, "number": number, "compared": number}
    connection.execute(SERVICES.insert().values(**values))
    return True


def published_events(connection: Connection, before: Instant, limit: int) -> list[int]:
    """Return the numbers of events from before that are published. Of each service it is looked at the first `limit` events.

    None of them is asked for again: what is compared behind a restore are the runs of the jobs.
    """
    found: list[int] = []
    for service, done in connection.execute(select(SERVICES.c.id, SERVICES.c.done)).all():
        published = select(EVENTS.c.number, EVENTS.c.at).where(EVENTS.c.service == service, EVENTS.c.number <= done)
        first = connection.execute(published.order_by(EVENTS.c.number).limit(limit)).all()
        found += [number for number, at in first if at < before]
    return found


class ServiceEvents:
    """The ends of the jobs of a service, as `EventLog` says."""

    def __init__(self, database: Database, service: str, retention_ms: int, enter: Callable[[], None]) -> None:
        self._database, self.service, self._retention_ms, self._enter = database, service, retention_ms, enter
        self._ledger: str | None = None

    @property
    def ledger(self) -> str:
        if self._ledger is None:
            with self._database.write() as connection:
                self._ledger = ledger_id(connection)
        return self._ledger

    def find(self) -> PublishedMark:
        """As `EventLog.find`. Raises as `enter` does."""
        self._enter()
        with self._database.read() as connection:
            asked = select(SERVICES.c.done, SERVICES.c.number, SERVICES.c.compared).where(SERVICES.c.id == self.service)
            return PublishedMark(*connection.execute(asked).one())

    def note(self, mark: PublishedMark) -> None:
        with self._database.write() as connection:
            values = msgspec.structs.asdict(mark)
            connection.execute(update(SERVICES).where(SERVICES.c.id == self.service).values(**values))

    def after(self, done: int, limit: int) -> Sequence[tuple[int, JobEvent]]:
        is_ours = (EVENTS.c.service == self.service) & (EVENTS.c.number > done)
        asked = select(EVENTS.c.number, EVENTS.c.body).where(is_ours).order_by(EVENTS.c.number).limit(limit)
        with self._database.read() as connection:
            return [(number, _event(body)) for number, body in connection.execute(asked)]

    def ended(self, events: Sequence[JobEvent]) -> set[tuple[str, int]]:
        """As `EventLog.ended`. Jobs know how often they have ended; those that retention has deleted are not there any more."""
        runs: dict[str, int] = {}
        with self._database.read() as connection:
            before = self._database.now(connection) - self._retention_ms
            is_trusted = self._database.clock.was_trusted
            for some in chunks(sorted({each.job for each in events})):
                asked = select(JOBS.c.id, JOBS.c.completions).where(JOBS.c.id.in_(some))
                runs |= {each.id: each.completions for each in connection.execute(asked)}
        return {
            (each.job, each.run)
            for each in events
            if (each.run <= runs[each.job] if each.job in runs else is_trusted and each.at < before)
        }


def _event(body: bytes) -> JobEvent:
    return msgspec.json.decode(bytes(body), type=JobEvent)
