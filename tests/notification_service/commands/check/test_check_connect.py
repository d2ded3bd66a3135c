"""What `check --connect` tries, and that it changes nothing."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from notification_service.command_line import main
from storage.embedded.database import Database

N = "payment-status-notification"
R = f"{N}.resequencer"
INGRESS = "ipf.processing-data.ingress"
I = f"{N}.storage.infinispan"  # noqa: E741 - beside N and R.


@pytest.fixture
def check(write, tmp_path, capsys):
    """Run `check --connect` on files and the embedded storage; return the exit code and stderr."""

    def run(*overrides, as_json=False):
        file = write(
            f'{INGRESS}.transport = file\n{N} {{ transport = file, run-directory = "{tmp_path}/run"\n'
            "resequencer { storage-type = embedded, strategy = SEQUENCE } }"
        )
        flags = ["--json"] if as_json else []
        code = main(["check", "--connect", *flags, "--config", str(file), *(("--set", *overrides) if overrides else ())])
        out, err = capsys.readouterr()
        return code, (json.loads(out) if as_json else err)

    return run


@pytest.fixture
def database(tmp_path):
    """The database of a service that ran before."""
    file = tmp_path / "run" / "state.db"
    file.parent.mkdir()
    made = Database(file, 100)
    with made.writing():
        pass
    made.close()
    return file


def test_a_service_that_never_ran_has_nothing_to_connect_to(check, tmp_path):
    assert check() == (0, "")
    assert not (tmp_path / "run").exists()


def test_a_database_is_opened_and_left_as_it_is(check, database):
    before = database.read_bytes()
    assert check() == (0, "")
    assert database.read_bytes() == before


def test_a_database_that_is_none_is_named_with_the_remedy(check, database):
    database.write_bytes(b"garbage" * 1_000)
    code, errors = check()
    assert code == 4
    assert errors.startswith(f"resequencer: {database}: ")
    assert "restore it from a backup" in errors
    code, report = check(as_json=True)
    assert (code, report["valid"]) == (4, True)
    assert len(report["unreachable"]) == 1


def test_a_database_that_another_program_writes_to_for_ever_is_out_of_reach(check, database, monkeypatch):
    monkeypatch.setattr("notification_service.configuration.storages._BUSY_TIMEOUT_MS", 10)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    code, errors = check()
    other.close()
    assert code == 4
    assert "locked" in errors
    assert check() == (0, "")


def test_another_storage_needs_no_database(check, database):
    database.write_bytes(b"garbage")
    assert check(f"{R}.storage-type=none") == (0, "")


@pytest.mark.slow
def test_a_redis_server_is_looked_at_and_left_as_it_is(check, own_server):
    from servers.redis import RedisServer, RedisSettings

    server = own_server(RedisServer, RedisSettings(append="everysec")).start()
    on_redis = (f"{R}.storage-type=redis", f'{N}.storage.redis.url="{server.url}"')
    code, report = check(*on_redis, as_json=True)
    assert code == 0
    assert "appendfsync is everysec" in report["warnings"][0]
    with closing(server.client()) as client:
        assert client.dbsize() == 0
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        code, errors = check(*on_redis)
        assert code == 4
        assert "set it to noeviction" in errors
        client.config_set("maxmemory-policy", "noeviction")
        client.execute_command("ACL", "SETUSER", "default", "-hset")
        code, errors = check(*on_redis)
        assert code == 4
        assert "docs/servers.md" in errors
    server.kill()
    code, errors = check(*on_redis)
    assert code == 4
    assert "Connection refused" in errors


def test_a_redis_url_that_cannot_be_understood_is_refused_if_it_is_used(check):
    overrides = f'{N}.storage.redis.url="redis://:s3cret@host:port/0"'
    assert check(overrides) == (0, "")
    code, errors = check(f"{R}.storage-type=redis", overrides)
    assert code == 3
    assert errors.startswith(f"resequencer: {N}.storage.redis.url: has an invalid port in 'host:port'")
    assert "s3cret" not in errors


@pytest.mark.slow
def test_an_infinispan_cache_is_looked_at_and_none_is_made(check, infinispan, fresh_name):
    name = fresh_name("checked")
    on_infinispan = (f"{R}.storage-type=cache", f'{I}.url="{infinispan.url}"', f"{I}.cache={name}")
    code, report = check(*on_infinispan, as_json=True)
    assert code == 0
    assert "does not exist and will be created" in report["warnings"][0]
    with infinispan.client() as client:
        assert name not in client.get("/rest/v2/caches").json()
    infinispan.create_cache(name, {"local-cache": {"expiration": {"max-idle": 1_000}}})
    code, errors = check(*on_infinispan)
    assert code == 4
    assert "remove its max-idle" in errors
    code, errors = check(*on_infinispan[:-1], f'{I}.url="http://127.0.0.1:1"')
    assert code == 4
    assert "Connection refused" in errors


@pytest.mark.parametrize(
    ("override", "errors"),
    [
        (f'{I}.url="http://user:s3cret@localhost:11222"', f"{I}.url: contains a login"),
        (f'{I}.url="http://localhost:port"', f"{I}.url: cannot be understood"),
        (f'{I}.url="http://:11222"', f"{I}.url: is not the address of a server"),
        (f'{I}.url="http://localhost?x=1"', f"{I}.url: is not the address of a server"),
        (f"{I}.tls.ca-file=nowhere.pem", f"{I}.tls.ca-file: nowhere.pem cannot be read"),
    ],
)
def test_what_is_configured_of_an_infinispan_server_is_refused_if_it_is_used(check, override, errors):
    assert check(override) == (0, "")
    code, found = check(f"{R}.storage-type=infinispan", override)
    assert code == 3
    assert found.startswith(f"resequencer: {errors}")
    assert "s3cret" not in found


def test_a_directory_of_facts_that_cannot_be_written_is_named_if_it_is_used(check, tmp_path):
    (tmp_path / "file").touch()
    facts = f'{N}.aggregation.facts.directory="{tmp_path}/file/facts"'
    assert check(facts)[0] == 0
    code, errors = check(f"{N}.aggregation.enabled=true", facts)
    assert code == 4
    assert errors.startswith(f"resequencer: {N}.aggregation.facts.directory: {tmp_path}/file/facts cannot be used: ")


@pytest.mark.parametrize(
    ("key", "others"),
    [
        (f"{N}.run-directory", ()),
        (f"{N}.file.directory", ()),
        (f"{INGRESS}.file.directory", ()),
        (f"{INGRESS}.file.archive-directory", (f"{INGRESS}.file.archive-every=1h",)),
    ],
)
def test_a_directory_that_cannot_be_used_is_named_with_its_key_and_the_remedy(check, tmp_path, key, others):
    (tmp_path / "file").touch()
    code, errors = check(f'{key}="{tmp_path}/file/wrong"', *others)
    why = f"cannot be used: {tmp_path}/file is not a directory; make it usable for the service, or name another directory"
    assert (code, errors) == (4, f"resequencer: {key}: {tmp_path}/file/wrong {why}\n")


def test_rights_that_are_missing_are_named_for_every_directory(check, tmp_path, monkeypatch):
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path.parent != tmp_path)
    code, errors = check(*(f'{key}.file.directory="{tmp_path}/{name}"' for key, name in ((INGRESS, "in"), (N, "out"))))
    assert code == 4
    assert [line.partition("; ")[0] for line in errors.splitlines()] == [
        f"resequencer: {N}.file.directory: {tmp_path}/out cannot be used: {tmp_path}/out is not writable",
        f"resequencer: {INGRESS}.file.directory: {tmp_path}/in cannot be used: {tmp_path}/in is not readable",
    ]


def test_a_missing_input_directory_that_a_start_would_make_is_noted(check, tmp_path):
    code, report = check(f'{INGRESS}.file.directory="{tmp_path}/mistyped"', as_json=True)
    assert (code, report["unreachable"]) == (0, [])
    assert f"{INGRESS}.file.directory: {tmp_path}/mistyped does not exist; a start makes it, empty" in report["warnings"]
    assert not (tmp_path / "mistyped").exists()


def test_a_directory_that_should_have_been_mounted_is_missed(check, tmp_path):
    code, errors = check(f'{N}.storage.embedded.file="{tmp_path}/mounted/state.db"')
    assert code == 4
    assert errors.startswith(f"resequencer: {N}.storage.embedded.file: {tmp_path}/mounted does not exist; create it, or mount ")


@pytest.mark.parametrize(
    ("override", "path"),
    [
        (f'{R}.strategy="nowhere:Mine"', f"{R}.strategy"),
        (f'{R}.strategy="json:loads"', f"{R}.strategy"),
        (f'{N}.target-type="nowhere:report"', f"{N}.target-type"),
        (f'{N}.target-type="json:__doc__"', f"{N}.target-type"),
        (f'{N}.settings="nowhere.csv"', f"{N}.settings"),
    ],
)
def test_what_cannot_be_imported_or_read_is_refused_as_run_would(check, override, path):
    code, errors = check(override)
    assert code == 3
    assert errors.startswith(f"resequencer: {path}: ")
    assert errors.count("\n") == 1
    code, report = check(override, as_json=True)
    assert (code, report["valid"]) == (3, False)
    assert [each["path"] for each in report["problems"]] == [path]


RECEIVER = f'{N}.delivery.receivers.tracker.url="http://127.0.0.1:1"'


def test_the_ledger_of_delivery_is_opened_where_there_is_one_and_not_made(check, tmp_path):
    assert check(RECEIVER) == (0, "")
    file = tmp_path / "ledger.db"
    with closing(sqlite3.connect(file)) as ledger, ledger:
        ledger.execute("create table alembic_version (version_num text)")
        ledger.execute("insert into alembic_version values ('9999')")
    elsewhere = f'{N}.delivery.ledger.file="{file}"'
    code, errors = check(RECEIVER, elsewhere)
    assert code == 4
    assert "tables of version 9999" in errors
    assert check(elsewhere) == (0, "")


def test_a_ledger_that_does_not_answer_is_named_without_its_password(check):
    code, errors = check(RECEIVER, f'{N}.delivery.ledger.url="postgresql://me:secret@127.0.0.1:1/ledger"')
    assert code == 4
    assert "the delivery ledger postgresql" in errors
    assert "secret" not in errors


def test_a_row_with_an_unknown_code_is_refused_by_its_line(check, tmp_path):
    file = tmp_path / "own.csv"
    header = "process_flow_name,event_name,transaction_status,reason_code,additional_information"
    file.write_text(f"{header}\nF,E,ACCP,,\nF,G,WRONG,,\n", encoding="utf-8")
    code, errors = check(f'{N}.settings="{file}"')
    assert code == 3
    assert errors.startswith(f"resequencer: {file}:3: transaction_status 'WRONG'")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f'{R}.strategy = "nowhere:Mine"', f"{R}.strategy"),
        (f'{N}.target-type = "nowhere:report"', f"{N}.target-type"),
        (f'{N}.settings = "nowhere.csv"', f"{N}.settings"),
    ],
)
def test_also_without_connect_what_cannot_be_imported_or_read_is_not_called_valid(write, capsys, text, path):
    assert main(["check", "--config", str(write(text))]) == 3
    errors = capsys.readouterr()
    assert errors.out == ""
    assert errors.err.startswith(f"resequencer: {path}: ")


def test_without_connect_no_server_is_asked(write, tmp_path):
    refusing = f'{R}.storage-type = redis\n{N}.storage.redis.url = "redis://127.0.0.1:1/0"\n{N}.run-directory = "{tmp_path}/run"'
    assert main(["check", "--config", str(write(f"{refusing}\n{R}.strategy = SEQUENCE"))]) == 0
    assert not (tmp_path / "run").exists()
