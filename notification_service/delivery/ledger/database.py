"""The database of the ledger: SQLite or PostgreSQL by SQLAlchemy, with transactions, the clock and the version of the tables."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError

from notification_service.delivery.errors import LedgerRefused, LedgerUnavailable
from resequencer.clock import Instant, SteadyClock
from resequencer.printable import without_secrets
from storage.private_file import make_lasting_directory, make_private

VERSION = "0008"
"""The version of the tables that this code uses: the newest of `notification_service/delivery/ledger/migrations/versions`."""

_MIGRATIONS = Path(__file__).parent / "migrations"
_WAIT_SECONDS = 10
_POOL = 8
_ADVISORY_LOCK = 7_203_117_345
"""Migrations of one database happen one after the other: a number that no other program is likely to use."""

_ENCODING = "UTF8"
_NEVER_TAKEN = ("too many SQL variables", "number of parameters must be")
"""Both databases report a statement with too many parameters as if another time could help."""

_NOW_POSTGRESQL = text("select cast(extract(epoch from clock_timestamp()) * 1000 as bigint)")


class Database:
    """`url` is `sqlite:///FILE` or `postgresql://…`. It connects at the first use.

    On SQLite `clock` names the instants. A server has a clock of its own, so that several machines agree; `clock` only says
    whether that one is to be believed (`asks_server`).
    """

    def __init__(self, url: str, clock: SteadyClock, *, asks_server: bool = True) -> None:
        parsed = make_url(url)
        self.shown = without_secrets(parsed.render_as_string(hide_password=True))
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.clock = clock
        self._asks_server = asks_server and not self.is_sqlite
        self._engine = _sqlite_engine(parsed) if self.is_sqlite else _postgresql_engine(parsed)
        self._migrating = threading.Lock()
        self._is_ready = False

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Return a connection in a transaction, which is committed at the end, or rolled back by an error.

        Raises:
            LedgerUnavailable: The database does not answer, or refused for a reason that may pass.
            LedgerRefused: The database will never do it.
        """
        self._prepare()
        with self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Return a connection for questions alone: on SQLite it does not wait for a writer. Raises as `write` does."""
        self._prepare()
        with self._translated(), self._engine.connect().execution_options(reads=True) as connection:
            yield connection

    def now(self, connection: Connection) -> Instant:
        """Return the instant to go by; a jump of the clock is not believed at once."""
        return self.clock.read(lambda: int(connection.scalar(_NOW_POSTGRESQL) or 0)) if self._asks_server else self.clock.now()

    def check(self) -> None:
        """Try to connect, and look at the version of the tables, without a change.

        Raises:
            LedgerUnavailable, LedgerRefused: As the first use would.
        """
        with self._translated(), self._engine.connect().execution_options(reads=True) as connection:
            self._refuse_other_encoding(connection)
            self._refuse_unknown(self._found_version(connection))

    def close(self) -> None:
        self._engine.dispose()

    def _prepare(self) -> None:
        if self._is_ready:
            return
        with self._migrating, self._translated():
            if not self._is_ready:
                self._migrate()
                self._is_ready = True

    def _migrate(self) -> None:
        with self._engine.connect().execution_options(reads=True) as connection:
            self._refuse_other_encoding(connection)
            if self._found_version(connection) == VERSION:
                return
        with self._engine.begin() as connection:
            if not self.is_sqlite:
                connection.execute(text("select pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
            found = self._found_version(connection)
            self._refuse_unknown(found)
            if found != VERSION:
                _upgrade(connection)

    def _refuse_other_encoding(self, connection: Connection) -> None:
        found = _ENCODING if self.is_sqlite else str(connection.scalar(text("show server_encoding")))
        if found != _ENCODING:
            remedy = f"create it with encoding '{_ENCODING}' template template0"
            raise LedgerRefused(f"the delivery ledger {self.shown} has the encoding {found}, which lacks characters: {remedy}")

    def _refuse_unknown(self, found: str | None) -> None:
        known = sorted(path.stem[1:5] for path in (_MIGRATIONS / "versions").glob("v*.py"))
        if found is not None and found not in known:
            raise LedgerRefused(
                f"the delivery ledger {self.shown} has tables of version {found}, known are {', '.join(known)}: "
                "start the version that wrote it"
            )

    def _found_version(self, connection: Connection) -> str | None:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.scalar(text("select version_num from alembic_version"))
        return found

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            if isinstance(error, DataError | ProgrammingError) or any(each in reason for each in _NEVER_TAKEN):
                raise LedgerRefused(f"the delivery ledger {self.shown} refuses: {reason}") from error
            raise LedgerUnavailable(self.shown, reason) from error
        except SQLAlchemyError as error:
            raise LedgerUnavailable(self.shown, " ".join(str(error).split())) from error


def _sqlite_engine(url: URL) -> Engine:
    file = Path(url.database or "")
    make_lasting_directory(file.parent)
    engine = create_engine(url, connect_args={"timeout": _WAIT_SECONDS, "check_same_thread": False}, pool_size=_POOL)

    @event.listens_for(engine, "do_connect")
    def see_that_it_is_private(*_: object) -> None:
        with suppress(OSError):  # Why it cannot be made, SQLite says better.
            make_private(file)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # Transactions begin below, not at the first change.
        for pragma in ("journal_mode = wal", "synchronous = full", "foreign_keys = on"):
            connection.execute(f"pragma {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later could fail for ever while others write.
        is_reading = connection.get_execution_options().get("reads", False)
        connection.exec_driver_sql("begin" if is_reading else "begin immediate")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    # A server that is gone is noticed, and a worker that stands still keeps no lock for ever.
    options = "-c statement_timeout=60000 -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000"
    arguments = {"connect_timeout": _WAIT_SECONDS, "tcp_user_timeout": _WAIT_SECONDS * 1_000, "options": options}
    return create_engine(url.set(drivername="postgresql+psycopg"), connect_args=arguments, pool_size=_POOL)


def _upgrade(connection: Connection, to: str = "head") -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # It logs as it is imported, too.
    # Imported where it is needed: a start with current tables does without.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
