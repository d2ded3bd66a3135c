"""Intake: what a source has becomes rows, together with the position in the source and the counts of the job."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from guardian.headers import SCHEDULE_REQUESTS
from notification_service.delivery.core.jobs import Item, Status
from notification_service.delivery.errors import IntakeLost, JobRefused
from notification_service.delivery.ledger.database import Database
from notification_service.delivery.ledger.finishing import Finishing, ready_status
from notification_service.delivery.ledger.job_rows import SCHEDULE, complete_jobs, get_job
from notification_service.delivery.ledger.tables import ERRORS, IS_HEAD, IS_OPEN, JOBS, KEYS, ROWS, SOURCES, chunks
from notification_service.delivery.settings import Receiver, Step
from resequencer.clock import Instant, Unchanged, instant_text
from resequencer.record import Headers

LEASE_MS = 30_000
ACCEPTED = "accepted"
"""The part of a source whose position is how much of what is missing an operator has accepted. The feed sets it back to 0."""

LONGEST_REASON = 1_000
_MAX_REPLACED = 5_000
_headers, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Headers)


class Intake(msgspec.Struct, frozen=True):
    """The right to read the source of a job, until another process takes it over. `positions` is where to continue, by part.

    `gone` are the parts that are marked as not there any more. `progress` is how far the schedule is whose requests the job
    delivers.
    """

    job: str
    epoch: int
    positions: Mapping[str, int]
    gone: frozenset[str] = frozenset()
    progress: str | None = None

    def behind(self, portion: "Portion") -> "Intake":
        """Return it with what the ledger knows after the portion was taken in."""
        positions = {**self.positions, **portion.positions} if portion.positions else self.positions
        return msgspec.structs.replace(self, positions=positions, gone=self.gone if portion.gone is None else portion.gone)


class Portion(msgspec.Struct, frozen=True):
    """What was read at once: `items` are selected for the receiver, `not_selected` others.

    `positions` is where the parts that were read continue. `is_end`: there was nothing more to read at the moment; `seals`: nor
    will there ever be. `gone` are parts with a position whose files are not there; None: it was not looked for all. `progress` is
    stored with the items, if it is not None. An item that `replaces` stands for the open rows of the job and its key that were
    never called.

    `missing` is how many bytes or offsets went before they were read, 0 for none, None: the feed has not looked. `lacks` says so
    for people. The source is not sealed while something is missing.
    """

    items: Sequence[Item]
    positions: Mapping[str, int]
    not_selected: int = 0
    is_end: bool = False
    seals: bool = False
    gone: frozenset[str] | None = None
    progress: str | None = None
    missing: int | None = None
    lacks: str | None = None
    replaces: bool = False


def open_intake(database: Database, job: str, owner: str, rights: Unchanged, known: Intake | None = None) -> Intake | None:
    """Take the right to read a job's source, or renew it. None: another process has it, or the job is sealed.

    The right of another is over when this process has seen for `LEASE_MS` that it was not renewed (`rights`). `known` is the last
    right of this owner, behind what was taken in by it: if no other was given since, and no loss was accepted, there can be no
    other positions.
    """
    with database.write() as connection:
        now = database.now(connection)
        asked = select(JOBS.c.intake_owner, JOBS.c.intake_epoch, JOBS.c.intake_until).where(JOBS.c.id == job)
        held = connection.execute(asked.with_for_update()).first()
        if held is None or (held.intake_owner not in ("", owner) and rights.for_ms(job, tuple(held)) < LEASE_MS):
            return None
        taken = (
            update(JOBS)
            .where(JOBS.c.id == job, JOBS.c.sealed_at.is_(None), JOBS.c.cancelled_at.is_(None))
            .values(intake_owner=owner, intake_until=now + LEASE_MS, intake_epoch=JOBS.c.intake_epoch + 1)
            .returning(JOBS.c.intake_epoch, JOBS.c.progress)
        )
        found = connection.execute(taken).first()
        if found is None:
            return None
        if known is not None and held.intake_owner in ("", owner) and held.intake_epoch == known.epoch:
            return msgspec.structs.replace(known, epoch=found.intake_epoch, progress=found.progress)
        asked = select(SOURCES.c.part, SOURCES.c.position, SOURCES.c.gone_at).where(SOURCES.c.job == job)
        parts = connection.execute(asked).all()
        gone = frozenset(each.part for each in parts if each.gone_at is not None)
        return Intake(job, found.intake_epoch, {each.part: each.position for each in parts}, gone, found.progress)


def find_progress(database: Database, job: str) -> str | None:
    """Return how far the schedule is whose requests the job delivers; None if it has not begun."""
    with database.read() as connection:
        return connection.scalar(select(JOBS.c.progress).where(JOBS.c.id == job))


def close_intake(database: Database, intake: Intake) -> None:
    """Give the right to read back, so that another process need not wait until it ends. No effect if it is lost already."""
    with database.write() as connection:
        connection.execute(update(JOBS).where(*_is_ours(intake)).values(intake_owner="", intake_until=0))


def accept_loss(database: Database, job: str, by: str, because: str) -> str:
    """Let the job do without what is missing of its source now; return what that is. The job keeps who accepted it, and why.

    If the missing part comes back it is delivered all the same.

    Raises:
        JobRefused: There is no such job, nothing of its source is missing, or there is no reason.
    """
    if not because.strip():
        raise JobRefused("give a reason; it is stored with the job")
    with database.write() as connection:
        get_job(connection, job)
        found = connection.execute(select(JOBS).where(JOBS.c.id == job).with_for_update()).mappings().one()
        if not found["missing"] or found["cancelled_at"] is not None:
            raise JobRefused(f"nothing of the source of {job} is missing")
        note = f"{instant_text(database.now(connection))} by {by}: {found['lacks']}; {because.strip()[:LONGEST_REASON]}\n"
        _write_positions(connection, job, {ACCEPTED: found["missing"]}, adds=True)
        # With another epoch: who has read before the order must not write that something is missing.
        changes = {"missing": 0, "lacks": None, "accepted": JOBS.c.accepted + note, "intake_epoch": JOBS.c.intake_epoch + 1}
        connection.execute(update(JOBS).where(JOBS.c.id == job).values(**changes))
    return str(found["lacks"])


def take_in(database: Database, intake: Intake, receiver: Receiver, name: str, portion: Portion) -> int:
    """Write rows, positions and counts in one transaction, and return how many rows there are new.

    An item that the job has had already makes no second row.

    Raises:
        IntakeLost: Another process reads the source by now, its end was taken in, or the job was cancelled. Nothing was written.
    """
    try:
        return _take_in(database, intake, receiver, name, portion)
    except IntegrityError as error:
        # Another process has written a row of it, or deleted its job, at the same moment.
        raise IntakeLost(f"job {intake.job} is read again: {' '.join(str(error.orig).split())}") from error


def _take_in(database: Database, intake: Intake, receiver: Receiver, name: str, portion: Portion) -> int:
    with database.write() as connection:
        now = database.now(connection)
        if connection.scalar(select(JOBS.c.id).where(*_is_ours(intake))) is None:
            raise _lost(intake)  # Long ago perhaps: the job may be deleted, and rows of it could not be written.
        items = {item.dedup: item for item in portion.items}
        # The gate is locked before keys, as everywhere in the ledger.
        finishing = Finishing(connection, receiver, name, now) if portion.replaces and items else None
        # Before it is asked what is known: the source of another live job may hold the same.
        keys = _lock_keys(connection, name, {item.key for item in items.values() if item.defect is None})
        known = _known(connection, _remembering(connection, intake.job, name), list(items))
        new = [item for dedup, item in items.items() if dedup not in known]
        fit = [item for item in new if item.defect is None]
        keys = {key: keys[key] for key in {item.key for item in fit}}
        fit = fit if finishing is None or not fit else _replace(finishing, intake.job, fit)
        if fit:
            # psycopg sends them without waiting for each; one statement with many rows would be compiled again each time.
            connection.execute(ROWS.insert(), _rows(connection, intake.job, receiver, name, fit, keys, now))
        _insert_failed(connection, intake.job, name, [item for item in new if item.defect is not None], now)
        _write_positions(connection, intake.job, portion.positions)
        if portion.gone is not None:
            _mark_gone(connection, intake.job, portion.gone - intake.gone, now)
            _mark_gone(connection, intake.job, intake.gone - portion.gone, None)
        _count(connection, intake, portion, len(new), len(new) - len(fit), now)
        if _seals(portion):
            complete_jobs(connection, [intake.job], now)
    return len(new)


def _remembering(connection: Connection, job: str, name: str) -> list[str]:
    """Return the jobs whose rows are duplicates for this one: the live jobs of a receiver remember together."""
    is_live = (JOBS.c.receiver == name) & JOBS.c.is_live & (JOBS.c.source != SCHEDULE)
    found = list(connection.scalars(select(JOBS.c.id).where(is_live)))
    return found if job in found else [job]


def _known(connection: Connection, jobs: list[str], dedups: list[str]) -> set[str]:
    found: set[str] = set()
    for some in chunks(dedups):
        asked = select(ROWS.c.dedup).where(ROWS.c.job.in_(jobs), ROWS.c.dedup.in_(some))
        found.update(connection.scalars(asked))
    return found


def _lock_keys(connection: Connection, name: str, keys: set[str]) -> dict[str, Any]:
    """Make the keys that are missing, and lock all: until the end of the transaction nothing else enters or leaves them."""
    ordered = sorted(keys)
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    if ordered:
        new = insert(KEYS).on_conflict_do_nothing()
        connection.execute(new, [{"receiver": name, "key": key} for key in ordered])
    locked: dict[str, Any] = {}
    for some in chunks(ordered):
        of = (KEYS.c.receiver == name, KEYS.c.key.in_(some))
        asked = select(KEYS.c.key, KEYS.c.is_announced, KEYS.c.held_by).where(*of).order_by(KEYS.c.key).with_for_update()
        locked |= {each.key: each for each in connection.execute(asked)}
    # Retention may have deleted a key between the two statements.
    return locked if len(locked) == len(keys) else _lock_keys(connection, name, keys)


def _replace(finishing: Finishing, job: str, items: list[Item]) -> list[Item]:
    """Cancel rows of the job that were never called; return the items, each with the number of requests for which it stands.

    At most `_MAX_REPLACED` end so at once: there can be very many when all of them have waited before.
    """
    never_called = (ROWS.c.receiver == finishing.name, ROWS.c.job == job, IS_OPEN, ROWS.c.epoch == 0)
    found: list[int] = []
    for some in chunks(sorted({item.key for item in items})):
        asked = select(ROWS.c.id).where(ROWS.c.key.in_(some), *never_called).order_by(ROWS.c.key, ROWS.c.id)
        found += finishing.connection.scalars(asked.limit(_MAX_REPLACED - len(found)))
    if not found:
        return items
    finishing.load(found)
    finishing.lock({row["key"] for row in finishing.rows.values()})
    stands_for = Counter[str]()
    for rows in chunks(found):
        for row, headers in finishing.connection.execute(select(ROWS.c.id, ROWS.c.headers).where(ROWS.c.id.in_(rows))):
            stands_for[finishing.rows[row]["key"]] += _requests_of(_decoder.decode(headers))
    for row in finishing.rows.values():
        finishing.end(row, Status.CANCELLED, "a newer request of its schedule stands for it")
    finishing.write()
    return [_with_requests(item, stands_for[item.key]) for item in items]


def _requests_of(headers: Headers) -> int:
    return next((int(value) for name, value in headers if name == SCHEDULE_REQUESTS), 1)


def _with_requests(item: Item, others: int) -> Item:
    more = ((SCHEDULE_REQUESTS, b"%d" % (others + 1)),) if others else ()
    return msgspec.structs.replace(item, headers=(*item.headers, *more))


def _rows(
    connection: Connection, job: str, receiver: Receiver, name: str, items: list[Item], keys: dict[str, Any], now: Instant
) -> list[dict[str, Any]]:
    ordered = sorted(keys)
    busy = {key for key, found in keys.items() if found.held_by is not None}
    for some in chunks(ordered):
        of = (ROWS.c.receiver == name, ROWS.c.key.in_(some), IS_HEAD)
        busy.update(connection.scalars(select(ROWS.c.key).where(*of)))
    rows = []
    for item in items:
        step = Step.DELIVER if keys[item.key].is_announced else receiver.steps.first
        rows.append(_row(job, name, item, now) | {
            "status": ready_status(receiver.steps, step).value, "step": step.value,
            "is_head": item.key not in busy, "due_at": now,
        })  # fmt: skip
        busy.add(item.key)
    return rows


def _row(job: str, name: str, item: Item, now: Instant) -> dict[str, Any]:
    return {
        "receiver": name,
        "job": job,
        "key": item.key,
        "dedup": item.dedup,
        "notification_id": item.notification_id or item.dedup,
        "position": item.position,
        "headers": _headers.encode(item.headers),
        "value": item.value,
        "epoch": 0,
        "attempts": 0,
        "questions": 0,
        "is_late": False,
        "taken_at": now,
    }


def _insert_failed(connection: Connection, job: str, name: str, items: list[Item], now: Instant) -> None:
    """Insert undeliverable items as failed rows, each with its reason, so that the counts add up."""
    for item in items:
        values = _row(job, name, item, now) | {
            "status": Status.FAILED.value, "step": Step.DELIVER.value, "is_head": False, "due_at": now, "ended_at": now,
            "error": item.defect,
        }  # fmt: skip
        row = connection.scalar(ROWS.insert().values(values).returning(ROWS.c.id))
        error = {"row": row, "job": job, "at": now, "step": Step.DELIVER.value, "attempts": 0, "error": item.defect}
        connection.execute(ERRORS.insert().values(error))


def _seals(portion: Portion) -> bool:
    return portion.seals and not portion.missing


def _write_positions(connection: Connection, job: str, positions: Mapping[str, int], *, adds: bool = False) -> None:
    if not positions:
        return
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(SOURCES)
    position = statement.excluded.position + (SOURCES.c.position if adds else 0)
    statement = statement.on_conflict_do_update(index_elements=[SOURCES.c.job, SOURCES.c.part], set_={"position": position})
    connection.execute(statement, [{"job": job, "part": part, "position": at} for part, at in positions.items()])


def _mark_gone(connection: Connection, job: str, parts: frozenset[str], since: Instant | None) -> None:
    """Note since when these parts are gone; None: they are there again."""
    for some in chunks(sorted(parts)):
        connection.execute(update(SOURCES).where(SOURCES.c.job == job, SOURCES.c.part.in_(some)).values(gone_at=since))


def _count(connection: Connection, intake: Intake, portion: Portion, new: int, failed: int, now: Instant) -> None:
    """Add to the job's counts; the same statement finds that another process reads the source by now."""
    read = len(portion.items) + portion.not_selected
    changes: dict[str, Any] = {
        "read": JOBS.c.read + read,
        "duplicates": JOBS.c.duplicates + len(portion.items) - new,
        "not_selected": JOBS.c.not_selected + portion.not_selected,
        "ingested": JOBS.c.ingested + new,
        "failed": JOBS.c.failed + failed,
        "intake_until": now + LEASE_MS,
    }
    # A source whose records are all passed over is read, too.
    changes |= {"taken_at": now} if read or portion.positions else {}
    changes |= {"caught_up_at": now} if portion.is_end else {}
    changes |= {"missing": portion.missing, "lacks": portion.lacks} if portion.missing is not None else {}
    if _seals(portion):
        changes |= {"sealed_at": now, "expected": changes["read"] - changes["duplicates"] - changes["not_selected"]}
    changes |= {"progress": portion.progress} if portion.progress is not None else {}
    if connection.execute(update(JOBS).where(*_is_ours(intake)).values(**changes)).rowcount == 0:
        raise _lost(intake)


def _is_ours(intake: Intake) -> tuple[ColumnElement[bool], ...]:
    return JOBS.c.id == intake.job, JOBS.c.intake_epoch == intake.epoch, JOBS.c.sealed_at.is_(None), JOBS.c.cancelled_at.is_(None)


def _lost(intake: Intake) -> IntakeLost:
    reason = "another process reads its source now or has read its end, or it was cancelled"
    return IntakeLost(f"job {intake.job} takes nothing in from here: {reason}")
