"""The tables: made at the first use, the same as the code's, and refused if they are of another version."""

import os
import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from harness.ledger_stage import LedgerStage, open_database
from harness.receivers import receiver
from sqlalchemy import inspect, text

from notification_service.delivery.errors import LedgerRefused, LedgerUnavailable
from notification_service.delivery.ledger.database import _upgrade
from notification_service.delivery.ledger.tables import METADATA


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    database = open_database(url)
    with database.write() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


OF_THE_BASELINE = (
    "insert into delivery_job (id, receiver, source, is_live, started_at, started_by, read, duplicates, not_selected, ingested,"
    " processed, rejected, failed, cancelled, suspensions, verifications, back_offs, limits, late, refused_results, sealed_at,"
    " expected, completions, intake_owner, intake_until, intake_epoch, taken_at, caught_up_at) values ('j', 'r', 's', false, 1,"
    " 'ann', 2, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 2, 0, '', 0, 1, 1, 1)",
    "insert into delivery_key (receiver, key, held_by, delivered) values ('r', 'a', null, 0)",
    *(
        "insert into delivery_row (id, receiver, job, key, dedup, notification_id, position, headers, value, status, mode, step,"
        f" is_head, due_at, epoch, attempts, questions, is_late, taken_at) values ({number}, 'r', 'j', 'a', 'a-{number}',"
        f" 'a-{number}', 'p@{number}', '[]', '', '{status}', {mode}, 'deliver', {head}, 1, 1, 3, 0, false, 1)"
        for number, status, mode, head in ((1, "retry", "'suspension'", "true"), (2, "ready", "null", "false"))
    ),
    'insert into delivery_gate values (\'r\', \'{"state":"shut","reason":"HTTP 401","since":1,"probe_at":2,"limit":3.5}\')',
)


def test_a_ledger_of_the_baseline_is_opened_and_what_waits_in_it_goes_on(url: str) -> None:
    before = open_database(url)
    with before._engine.begin() as connection:
        _upgrade(connection, "0003")
        for each in OF_THE_BASELINE:
            connection.exec_driver_sql(each)
    before.close()
    it = LedgerStage(url, receiver())
    (waiting,) = it.ledger.waiting("r", 9)
    assert (waiting.attempts, it.ledger.gates()[0].reason) == (3, "HTTP 401")
    (probe,) = it.claim()
    it.finish([probe])
    assert (it.deliver_all(), it.job().processed, it.job().retries.limit) == (["a-2"], 2, 1)
    it.close()


def test_tables_of_the_baseline_are_brought_to_today_with_what_they_hold(url: str) -> None:
    database = open_database(url)
    with database._engine.begin() as connection:
        _upgrade(connection, "0003")
        named = {"id": "'j'", "receiver": "'r'", "source": "'s'", "started_by": "'ann'", "is_live": "false", "intake_owner": "''"}
        zero = [
            each.name for each in METADATA.tables["delivery_job"].columns if not each.nullable and each.server_default is None
        ]
        values = dict.fromkeys(zero, "0") | named
        connection.execute(text(f"insert into delivery_job ({', '.join(values)}) values ({', '.join(values.values())})"))
    with database.read() as connection:
        assert connection.execute(text("select id, missing, accepted from delivery_job")).all() == [("j", 0, "")]
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
