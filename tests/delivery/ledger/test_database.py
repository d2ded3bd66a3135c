"""The tables: made at the first use, the same as the code's, and refused if they are of a newer version."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from delivery.errors import LedgerRefused, LedgerUnavailable
from delivery.ledger.database import Database
from delivery.ledger.tables import METADATA


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    database = Database(url)
    with database.write() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


def test_tables_of_a_newer_version_are_refused(url: str) -> None:
    database = Database(url)
    with database.write() as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    database.close()
    newer = Database(url)
    with pytest.raises(LedgerRefused, match=r"newer version.*9999"), newer.read():
        pass
    with pytest.raises(LedgerRefused, match=r"newer version.*9999"):
        newer.check()
    newer.close()


def test_a_check_makes_no_tables(url: str) -> None:
    database = Database(url)
    database.check()
    assert inspect(database._engine).get_table_names() == []
    database.close()


def test_the_clock_is_the_databases(url: str) -> None:
    database = Database(url)
    with database.read() as connection:
        first, second = database.now(connection), database.now(connection)
    assert 0 <= second - first < 60_000
    assert first > 1_700_000_000_000
    database.close()


def test_a_database_that_is_not_there_is_unavailable_and_its_password_is_not_shown() -> None:
    database = Database("postgresql://me:hidden@127.0.0.1:1/none")
    with pytest.raises(LedgerUnavailable, match=r"postgresql://me:\*\*\*@127\.0\.0\.1:1/none") as raised, database.write():
        pass
    assert "hidden" not in str(raised.value)
