"""The tables: made at the first use, the same as the code's, and refused if they are of another version."""

import os
import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from harness.ledger_stage import open_database
from sqlalchemy import inspect, text

from delivery.errors import LedgerRefused, LedgerUnavailable
from delivery.ledger.tables import METADATA


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    database = open_database(url)
    with database.write() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


@pytest.mark.parametrize("version", ["9999", "0002"])
def test_tables_of_another_version_are_refused(url: str, version: str) -> None:
    database = open_database(url)
    with database.write() as connection:
        connection.execute(text(f"update alembic_version set version_num = '{version}'"))
    database.close()
    again = open_database(url)
    with pytest.raises(LedgerRefused, match=f"tables of version {version}"), again.read():
        pass
    with pytest.raises(LedgerRefused, match=f"tables of version {version}"):
        again.check()
    again.close()


def test_a_check_makes_no_tables(url: str) -> None:
    database = open_database(url)
    database.check()
    assert inspect(database._engine).get_table_names() == []
    database.close()


def test_the_clock_is_the_databases(url: str) -> None:
    database = open_database(url)
    with database.read() as connection:
        first, second = database.now(connection), database.now(connection)
    assert 0 <= second - first < 60_000
    assert first > 1_700_000_000_000
    database.close()


def test_a_database_that_is_not_there_is_unavailable_and_its_password_is_not_shown() -> None:
    database = open_database("postgresql://me:hidden@127.0.0.1:1/none")
    with pytest.raises(LedgerUnavailable, match=r"postgresql://me:\*\*\*@127\.0\.0\.1:1/none") as raised, database.write():
        pass
    assert "hidden" not in str(raised.value)
    in_query = open_database("postgresql://me@127.0.0.1:1/none?password=hidden")
    with pytest.raises(LedgerUnavailable, match=r"none\?password=\*\*\*") as raised, in_query.write():
        pass
    assert "hidden" not in str(raised.value)


def test_a_statement_with_too_many_parameters_is_refused_and_not_repeated(url: str) -> None:
    count = 260_000 if url.startswith("sqlite") else 70_000
    database = open_database(url)
    with pytest.raises(LedgerRefused, match="refuses: "), database.write() as connection:
        connection.exec_driver_sql(
            "select 1 where 1 in (" + ("?, " if database.is_sqlite else "%s, ") * count + "1)", (1,) * count
        )
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["select * from no_such_table", "select cast('x' as integer)"])
def test_what_the_database_will_never_do_is_refused_and_not_repeated(ledger_database: str, what: str) -> None:
    database = open_database(ledger_database)
    with pytest.raises(LedgerRefused, match="refuses: "), database.write() as connection:
        connection.execute(text(what))
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("ledger_database", ["encoding 'LATIN1' locale 'C' template template0"], indirect=True)
def test_a_database_that_lacks_characters_is_refused_before_its_first_use(ledger_database: str) -> None:
    database = open_database(ledger_database)
    for use in (database.check, lambda: database.write().__enter__()):
        with pytest.raises(LedgerRefused, match=r"has the encoding LATIN1.*create it with encoding 'UTF8'"):
            use()
    database.close()


def test_only_the_services_user_can_read_the_file_also_one_of_before(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.touch(0o644)
    before = os.umask(0o022)
    try:
        database = open_database(f"sqlite:///{file}")
        with database.write():
            found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)
    assert found == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm"), 0o600)
