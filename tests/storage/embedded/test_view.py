"""The view of storage `embedded`: the contract (tests/storage/view_contract.py), and what concerns the file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from resequencer.storage_port import StorageRefused
from storage.embedded import change_log, view
from tests.storage.contract import OTHER, PARTITION, WAITS, idle, put, waiting
from tests.storage.embedded.storages import EmbeddedHarness, memory_directory
from tests.storage.model import machine_settings
from tests.storage.view_contract import MANY, Copy, StorageViewContract, ViewMachine


class TestEmbeddedViewContract(StorageViewContract):
    @pytest.fixture
    def harness(self, embedded: EmbeddedHarness) -> EmbeddedHarness:
        return embedded


class EmbeddedViewMachine(ViewMachine):
    """The log of changes is so short that it is often cut off."""

    def make_harness(self) -> EmbeddedHarness:
        self.bound = patch.object(change_log, "LARGEST_BYTES", 400)
        self.bound.start()
        self.directory = memory_directory()
        return EmbeddedHarness(Path(self.directory.name))

    def teardown(self) -> None:
        super().teardown()
        self.bound.stop()
        self.directory.cleanup()


TestEmbeddedViewMachine = EmbeddedViewMachine.TestCase
TestEmbeddedViewMachine.settings = machine_settings


def test_nothing_is_created_where_no_file_is(embedded):
    assert embedded.make_view().find_waiting(PARTITION, None) is None
    assert list(embedded.file.parent.iterdir()) == []


def test_a_log_is_cleared_and_a_commit_is_made_in_the_midst_of_a_reading(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, *(waiting(f"unit-{number}") for number in range(MANY)))
    portions = embedded.make_view().find_waiting(PARTITION, None).portions
    listed = [unit for unit, _ in next(portions)]
    with closing(sqlite3.connect(embedded.file, timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("COMMIT")
        is_hindered, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not is_hindered
    put(store, waiting("unit-1"))
    listed += [unit for portion in portions for unit, _ in portion]
    assert sorted(listed) == sorted(f"unit-{number}" for number in range(MANY))


def test_a_unit_that_stopped_waiting_in_the_midst_of_a_reading_is_left_out_even_if_another_took_its_row(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, *(waiting(f"unit-{number}") for number in range(MANY)))
    store.checkpoint()
    changes = embedded.make_view().find_waiting(PARTITION, None)
    put(store, idle(f"unit-{MANY - 1}"))
    assert store.expire(10**15, ()) == 1
    put(storage.open(OTHER), waiting("another"))
    assert not {"another", f"unit-{MANY - 1}"} & {unit for portion in changes.portions for unit, _ in portion}


def test_a_file_that_was_replaced_in_the_midst_of_a_reading_does_not_mix_with_it(embedded):
    put(embedded.make().open(PARTITION), *(waiting(f"unit-{number}") for number in range(MANY)))
    view = embedded.make_view()
    changes = view.find_waiting(PARTITION, None)
    next(changes.portions)
    embedded.close()
    for each in embedded.file.parent.iterdir():
        each.unlink()
    put(embedded.make().open(PARTITION), *(waiting(f"new-{number}") for number in range(MANY)))
    assert not any(unit.startswith("new") for portion in changes.portions for unit, _ in portion)
    copy = Copy(view)
    copy.marker = changes.marker
    copy.follow()
    assert copy.waits == {f"new-{number}": WAITS for number in range(MANY)}


def test_what_a_service_that_died_left_in_its_log_is_seen_and_stays_there(embedded, tmp_path):
    put(embedded.make().open(PARTITION), waiting("a"))
    left = EmbeddedHarness(tmp_path)
    for suffix in ("", "-wal", "-log-1"):
        left.file.with_name(left.file.name + suffix).write_bytes(
            embedded.file.with_name(embedded.file.name + suffix).read_bytes()
        )
    before, view = left.dump(), left.make_view()
    assert before["state.db-log-1"]
    assert view.find_unit(PARTITION, "a").waits == WAITS
    view.close()
    assert left.dump() == before


def entries(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT count(*) FROM changes").fetchone()[0]


def test_a_log_of_changes_that_was_cut_off_leads_to_the_whole_and_is_bounded(embedded, monkeypatch):
    monkeypatch.setattr(change_log, "LARGEST_BYTES", 2_000)
    store = embedded.make().open(PARTITION)
    put(store, *(waiting(f"unit-{number}") for number in range(50)))
    copy, behind = Copy(embedded.make_view()), Copy(embedded.make_view())
    behind.follow()
    for number in range(49):
        copy.follow()
        put(store, idle(f"unit-{number}"))
        store.checkpoint()
    assert not copy.follow().is_whole
    assert behind.follow().is_whole
    assert copy.waits == behind.waits == {"unit-49": WAITS}
    assert 20 < entries(embedded.file) < 30


def test_more_changes_than_a_portion_come_in_portions_and_more_than_a_quarter_as_the_whole(embedded):
    store = embedded.make().open(PARTITION)
    put(store, *(waiting(f"unit-{number}") for number in range(8_000)))
    view = embedded.make_view()
    marker = view.find_waiting(PARTITION, None).marker
    put(store, *(idle(f"unit-{number}") for number in range(3_000)))
    changes = view.find_waiting(PARTITION, marker)
    assert not changes.is_whole
    assert [len(portion) for portion in changes.portions] == [2_000, 1_000]
    put(store, *(idle(f"unit-{number}") for number in range(3_000, 6_000)))
    assert view.find_waiting(PARTITION, marker).is_whole


def test_a_file_that_a_power_cut_set_back_is_listed_whole_also_at_the_same_number_of_commits(embedded):
    store = embedded.make().open(PARTITION)
    put(store, waiting("a"))
    embedded.close()
    kept = embedded.file.read_bytes()
    store = embedded.make().open(PARTITION)
    put(store, waiting("lost"))
    copy = Copy(embedded.make_view())
    copy.follow()
    embedded.close()
    embedded.file.write_bytes(kept)
    assert copy.follow().is_whole
    assert copy.waits == {"a": WAITS}
    copy.marker = f"{store.header.token}/{store.header.commit}"
    copy.waits["lost"] = WAITS
    put(embedded.make().open(PARTITION), waiting("b"))
    assert copy.follow().is_whole
    assert copy.waits == {"a": WAITS, "b": WAITS}


@pytest.mark.parametrize("version", [4, 7])
def test_a_file_of_another_format_is_refused_and_stays_as_it_is(embedded, version):
    with closing(embedded.make()) as storage:
        put(storage.open(PARTITION), waiting("a"))
    with closing(sqlite3.connect(embedded.file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = embedded.file.read_bytes()
    with pytest.raises(StorageRefused, match="format is"):
        embedded.make_view().find_header(PARTITION)
    assert embedded.file.read_bytes() == before


@pytest.mark.parametrize("damage", [b"", b"no database", b"\x00" * 4_096])
def test_a_damaged_file_is_refused(embedded, damage):
    embedded.file.write_bytes(damage)
    view = embedded.make_view()
    for look in (view.find_header, lambda partition: view.find_unit(partition, "a"), lambda each: view.find_waiting(each, None)):
        with pytest.raises(StorageRefused, match=r"state\.db"):
            look(PARTITION)


def test_changed_units_are_found_by_their_names_and_not_among_all_that_wait(embedded):
    with closing(embedded.make()) as storage:
        storage.open(PARTITION)
    with closing(sqlite3.connect(embedded.file)) as connection:
        sql = f"EXPLAIN QUERY PLAN {view._NAMED_UNITS} ({','.join('?' * 2_000)})"
        plan = [row[3] for row in connection.execute(sql, (1, *[b"x"] * 2_000))]
    assert plan == ["SEARCH units USING INDEX sqlite_autoindex_units_1 (partition=? AND unit=?)"]
