"""The contract of storages (resequencer/storage_port.py), as tests that each implementation runs on the real thing.

A storage's test file derives from `StorageContract` and gives the fixture `harness`.
"""

from collections.abc import Collection
from functools import partial
from itertools import count
from typing import Protocol

import pytest
from harness.examples import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from guardian.takeover import begin_initial_state, end_initial_state, is_unfinished
from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Commit, PartitionStore, Pending, Snapshot, StashEntry, Storage, UnitChange, WaitKind, Waits

PARTITION = Partition("IPF_PROCESSING_DATA", 0)
OTHER = Partition("IPF_PROCESSING_DATA", 1)
WAITS = Waits(21_000, WaitKind.DEADLINE, 0, "sequence:3", "SEQUENCE", 1, 700)

_attempts = count()


class Harness(Protocol):
    """Makes storages that share one set of data, empty at first."""

    def make(self) -> Storage:
        """Make a storage on the data as another process would. If nothing survives a process, it is always the same storage."""
        ...

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        """Store the commit, but lose the answer to the store."""
        ...


def following(store: PartitionStore, *changes: UnitChange, **fields: object) -> Commit:
    """Return the next commit, as a new decision."""
    number = store.header.commit + 1
    caught_up_ms = store.header.caught_up_ms
    values = {"next_offset": number, "highest_number": 0, "changes": changes, "caught_up_ms": caught_up_ms, **fields}
    return Commit(number=number, attempt=f"attempt-{next(_attempts)}", **values)


def put(store: PartitionStore, *changes: UnitChange, **fields: object) -> Commit:
    commit = following(store, *changes, **fields)
    store.commit(commit)
    return commit


def idle(unit: str) -> UnitChange:
    return UnitChange(unit, b"state of " + unit.encode())


def waiting(unit: str, waits: Waits = WAITS) -> UnitChange:
    return UnitChange(unit, b"state of " + unit.encode(), waits)


def expire_all(store: PartitionStore, until: int, spared: Collection[str] = ()) -> int:
    """Expire all idle units; return how many. Some storages delete them with the next commit."""
    gone = 0
    while went := store.expire(until, spared):
        gone += went
    put(store, caught_up_ms=max(until, store.header.caught_up_ms))
    return gone


class StorageContract:
    @pytest.fixture
    def storage(self, harness: Harness) -> Storage:
        return harness.make()

    @pytest.fixture
    def store(self, storage: Storage) -> PartitionStore:
        return storage.open(PARTITION)

    # Stored values come back.

    def test_a_storage_that_answers_can_be_connected_to_before_a_partition_is_opened(self, harness):
        storage = harness.make()
        storage.connect()
        storage.connect()
        assert storage.open(PARTITION).header.is_empty

    def test_a_partition_that_was_never_opened_has_an_empty_header(self, store):
        assert store.header.is_empty
        assert (store.header.commit, store.header.highest_number, store.header.heal_offset) == (0, 0, 0)
        assert store.header.history == ()
        assert (list(store.waiting()), list(store.pending())) == ([], [])
        assert not store.has_units()

    def test_a_load_returns_the_units_that_exist_and_no_others(self, store):
        put(store, idle("a"), idle("b"))
        assert store.load(["a", "missing", "b"]) == {
            "a": Snapshot("a", b"state of a", None, ()),
            "b": Snapshot("b", b"state of b", None, ()),
        }
        assert store.load([]) == {}

    def test_a_unit_is_loaded_as_it_was_last_committed(self, store):
        put(store, UnitChange("a", b"1", WAITS, (StashEntry(7, b"seven"),), data=b"data"))
        put(store, UnitChange("a", b"2", WAITS, (StashEntry(8, b"eight"),)))
        stash = (StashEntry(7, b"seven"), StashEntry(8, b"eight"))
        assert store.load(["a"]) == {"a": Snapshot("a", b"2", b"data", stash)}

    def test_payment_data_stays_until_it_is_replaced_and_empty_is_not_missing(self, store):
        put(store, UnitChange("a", b"1", data=b"first"))
        put(store, UnitChange("a", b"2"))
        assert store.load(["a"])["a"].data == b"first"
        put(store, UnitChange("a", b"3", data=b""))
        assert store.load(["a"])["a"].data == b""

    def test_the_stash_comes_back_by_ascending_offset(self, store):
        added = tuple(StashEntry(offset, b"%d" % offset) for offset in (9, 2**53, 0, 10, 1))
        put(store, UnitChange("a", b"", WAITS, added))
        assert [entry.offset for entry in store.load(["a"])["a"].stash] == [0, 1, 9, 10, 2**53]

    def test_entries_leave_and_join_a_stash_in_one_change(self, store):
        put(store, UnitChange("a", b"", WAITS, (StashEntry(1, b"one"), StashEntry(2, b"two"), StashEntry(3, b"three"))))
        put(store, UnitChange("a", b"", WAITS, (StashEntry(4, b"four"),), (1, 3)))
        assert store.load(["a"])["a"].stash == (StashEntry(2, b"two"), StashEntry(4, b"four"))

    def test_an_entry_that_is_removed_and_added_in_one_change_is_replaced(self, store):
        put(store, UnitChange("a", b"", WAITS, (StashEntry(1, b"first attempt"),)))
        put(store, UnitChange("a", b"", WAITS, (StashEntry(1, b"second attempt"),), (1,)))
        assert store.load(["a"])["a"].stash == (StashEntry(1, b"second attempt"),)

    def test_removing_an_entry_that_is_not_there_changes_nothing(self, store):
        put(store, UnitChange("a", b"", WAITS, (StashEntry(1, b"one"),)))
        put(store, UnitChange("a", b"", WAITS, (), (2,)))
        assert store.load(["a"])["a"].stash == (StashEntry(1, b"one"),)

    def test_a_stash_of_a_thousand_comes_loose_in_one_change(self, store):
        entries = tuple(StashEntry(offset, b"x" * 1_000) for offset in range(1_000))
        put(store, UnitChange("a", b"", WAITS, entries))
        assert store.load(["a"])["a"].stash == entries
        put(store, UnitChange("a", b"", None, (), tuple(range(1_000))))
        assert store.load(["a"])["a"].stash == ()
        assert list(store.waiting()) == []

    def test_values_of_five_megabytes_come_back_whole(self, store):
        large = bytes(range(256)) * (5 * 2**20 // 256)
        put(
            store,
            UnitChange("a", large, WAITS, (StashEntry(1, large),), (), large),
            added=(Pending(1, large),),
            highest_number=1,
        )
        assert store.load(["a"])["a"] == Snapshot("a", large, large, (StashEntry(1, large),))
        assert list(store.pending()) == [Pending(1, large)]

    def test_ten_thousand_units_go_into_one_commit(self, store):
        changes = tuple((waiting if number % 2 else idle)(f"unit-{number}") for number in range(10_000))
        put(store, *changes)
        loaded = store.load([change.unit for change in changes])
        assert {unit: snapshot.state for unit, snapshot in loaded.items()} == {each.unit: each.state for each in changes}
        assert len(store.waiting()) == 5_000

    @given(st.sets(st.text(min_size=1, max_size=256), min_size=1, max_size=20))
    @example({"\x00", "a\x00b", "a\x00c", "a", "A", "\n", "a\n", " a", "a "})
    @example({"\N{SLIGHTLY SMILING FACE}" * 256, "é", "e\N{COMBINING ACUTE ACCENT}", "\uffff", "\U0010ffff", "ﬀ", "ff"})
    @example({"'; DROP TABLE units; --", '"', "\\", "%", "_", "{a}", "{b}", "*", "a:b", "a|b", "null", "0", "00", "1e3"})
    @settings(
        max_examples=examples(25),
        # The partition is new in each example, because each implementation runs the same test.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    def test_units_are_told_apart_by_every_character_of_their_ids(self, storage, units):
        store = storage.open(Partition("ids", next(_attempts)))
        put(store, *(UnitChange(unit, unit.encode(), WAITS, (StashEntry(1, unit.encode()),)) for unit in units))
        assert {unit: each.stash[0].body for unit, each in store.load(units).items()} == {u: u.encode() for u in units}
        assert {unit for unit, _ in store.waiting()} == units

    def test_partitions_know_nothing_of_each_other(self, storage, store):
        other, third = storage.open(OTHER), storage.open(Partition("IPF_PROCESSING_DATA-1", 0))
        put(store, UnitChange("a", b"here", WAITS), added=(Pending(1, b"here"),), highest_number=1)
        put(other, UnitChange("a", b"there"), added=(Pending(1, b"there"),), highest_number=1)
        assert (store.load(["a"])["a"].state, other.load(["a"])["a"].state) == (b"here", b"there")
        assert (list(store.pending()), list(other.pending())) == ([Pending(1, b"here")], [Pending(1, b"there")])
        assert (len(store.waiting()), len(other.waiting())) == (1, 0)
        assert third.load(["a"]) == {}
        assert third.header.is_empty

    def test_a_partition_that_was_released_is_forgotten_only_where_nothing_is_durable(self, storage, store):
        put(store, waiting("a"), next_offset=5)
        put(storage.open(OTHER), idle("b"), next_offset=7)
        storage.give_up(PARTITION)
        again = storage.open(PARTITION)
        assert again.header.is_empty is not storage.is_durable
        assert [unit for unit, _ in again.waiting()] == (["a"] if storage.is_durable else [])
        assert set(storage.open(OTHER).load(["b"])) == {"b"}
        storage.give_up(PARTITION)
        storage.give_up(PARTITION)

    # The header.

    def test_what_is_known_of_orders_goes_with_its_commit_and_to_the_next_owner(self, harness):
        storage = harness.make()
        store = storage.open(PARTITION)
        assert store.header.orders == ""
        put(store, orders='{"next_offset":17}')
        assert store.header.orders == '{"next_offset":17}'
        late = following(store, orders="late")
        put(store, orders="ü" * 100_000)
        with pytest.raises(OwnershipLost):
            store.commit(late)
        newer = storage.open(PARTITION)
        assert newer.header.orders == "ü" * 100_000
        with pytest.raises(OwnershipLost):
            put(store, orders="of a zombie")
        put(newer)
        assert storage.open(PARTITION).header.orders == ""

    def test_the_state_of_the_source_goes_with_its_commit_and_to_the_next_owner(self, harness):
        storage = harness.make()
        store = storage.open(PARTITION)
        assert store.header.source_state == ""
        put(store, source_state='[17,"ID:1"]', orders="some")
        late = following(store, source_state="late")
        put(store, source_state="ü" * 100_000)
        with pytest.raises(OwnershipLost):
            store.commit(late)
        newer = storage.open(PARTITION)
        assert (newer.header.source_state, newer.header.orders) == ("ü" * 100_000, "")
        with pytest.raises(OwnershipLost):
            put(store, source_state="of a zombie")
        put(newer)
        assert storage.open(PARTITION).header.source_state == ""

    def test_the_header_follows_every_commit(self, storage, store):
        put(store, next_offset=0, highest_number=0)
        assert not store.header.is_empty
        source = "events=mapped-71d30ea5d016544e a topic's id/a group"  # With the name of a format of events in front.
        put(store, next_offset=2**60, highest_number=2**53, heal_offset=2**59, source=source)
        for header in (store.header, storage.open(PARTITION).header):
            assert (header.next_offset, header.highest_number, header.heal_offset) == (2**60, 2**53, 2**59)
            assert header.source == source
        assert store.header.commit == 2

    def test_a_new_owner_inherits_everything_but_starts_its_own_count(self, harness, storage, store):
        put(store, waiting("a"), idle("b"), next_offset=5, highest_number=2, added=(Pending(1, b"one"), Pending(2, b"two")))
        storage.close()
        taken = harness.make().open(PARTITION)
        assert taken.header.token != store.header.token
        assert (taken.header.commit, taken.header.next_offset, taken.header.highest_number) == (0, 5, 2)
        assert taken.load(["a", "b"]).keys() == {"a", "b"}
        assert list(taken.waiting()) == [("a", WAITS)]
        assert list(taken.pending()) == [Pending(1, b"one"), Pending(2, b"two")]

    def test_the_history_names_the_last_commit_of_every_older_token(self, storage):
        tokens = []
        for commits in (0, 2, 1):
            store = storage.open(PARTITION)
            for _ in range(commits):
                put(store)
            tokens.append(store.header.token)
        history = dict(storage.open(PARTITION).header.history)
        assert history == dict(zip(tokens, (0, 2, 1), strict=True))

    def test_the_history_is_bounded_but_never_forgets_the_last_that_committed(self, storage):
        for _ in range(100):
            published = storage.open(PARTITION)
            put(published)
        for _ in range(100):
            header = storage.open(PARTITION).header
        assert len(header.history) == 64
        assert dict(header.history)[published.header.token] == 1

    # Pending output.

    def test_what_is_pending_comes_back_in_the_order_of_its_numbers(self, store):
        put(store, added=(Pending(10, b"ten"), Pending(9, b"nine")), highest_number=10)
        put(store, added=(Pending(2**53, b"last"), Pending(11, b"eleven")), highest_number=2**53)
        assert [each.number for each in store.pending()] == [9, 10, 11, 2**53]

    def test_what_was_published_leaves_and_the_rest_stays(self, store):
        put(store, added=tuple(Pending(number, b"%d" % number) for number in (1, 2, 3)), highest_number=3)
        put(store, added=(Pending(4, b"4"),), published=2, highest_number=4)
        assert list(store.pending()) == [Pending(3, b"3"), Pending(4, b"4")]

    def test_what_is_pending_can_be_given_new_numbers_in_one_commit(self, store):
        put(store, added=(Pending(1, b"one"), Pending(2, b"two")), highest_number=2)
        put(store, added=(Pending(8, b"one"), Pending(9, b"two")), published=7, highest_number=9)
        assert list(store.pending()) == [Pending(8, b"one"), Pending(9, b"two")]

    # Compare-and-set.

    def test_a_doubled_commit_succeeds_without_effect(self, store):
        commit = put(store, waiting("a"), added=(Pending(1, b"one"),), highest_number=1)
        store.commit(commit)
        assert store.header.commit == 1
        assert list(store.pending()) == [Pending(1, b"one")]
        put(store, idle("a"), published=1)
        assert store.header.commit == 2

    def test_a_commit_whose_answer_was_lost_succeeds_when_it_is_made_again(self, harness, store):
        commit = following(store, UnitChange("a", b"", WAITS, (StashEntry(1, b"one"),)))
        harness.commit_unanswered(store, commit)
        assert store.header.commit == 0
        store.commit(commit)
        assert (store.header.commit, store.header.next_offset) == (1, 1)
        assert store.load(["a"])["a"].stash == (StashEntry(1, b"one"),)
        put(store, idle("b"))

    def test_deciding_anew_under_a_number_that_may_be_taken_is_refused(self, harness, store):
        harness.commit_unanswered(store, following(store, idle("a")))
        with pytest.raises(OwnershipLost):
            put(store, idle("b"))
        with pytest.raises(OwnershipLost):
            store.load(["a"])

    def test_a_late_commit_has_no_effect(self, storage, store):
        first = put(store, UnitChange("a", b"first"), next_offset=1)
        put(store, UnitChange("a", b"second"), next_offset=2)
        with pytest.raises(OwnershipLost):
            store.commit(first)
        assert store.load(["a"])["a"].state == b"second"
        assert storage.open(PARTITION).header.next_offset == 2

    @pytest.mark.parametrize("number", [0, 1, 3, 4, 100])
    def test_only_the_next_number_can_be_committed(self, store, number):
        put(store, idle("a"))
        with pytest.raises(OwnershipLost):
            store.commit(Commit(number, "another attempt", 9, 0, 0, (idle("b"),)))
        assert store.load(["a", "b"]).keys() == {"a"}
        assert store.header.commit == 1

    def test_a_zombie_can_do_nothing_once_a_new_owner_came(self, harness, store):
        commit = put(store, idle("a"), added=(Pending(1, b"one"),), highest_number=1)
        taken = harness.make().open(PARTITION)
        for act in (
            lambda: put(store, idle("zombie")),
            lambda: store.commit(commit),
            lambda: store.load(["a"]),
            store.waiting,
            store.pending,
        ):
            with pytest.raises(OwnershipLost):
                act()
        assert taken.load(["a", "zombie"]).keys() == {"a"}
        put(taken, idle("b"))

    def test_calls_side_by_side_have_an_outcome_each_and_may_be_repeated(self, harness, storage, store):
        """Of six partitions, another process owns one by now."""
        others = [storage.open(Partition("IPF_PROCESSING_DATA", number)) for number in range(1, 6)]
        taken = harness.make().open(OTHER)
        stores = [store, *others]
        commits = [following(each, idle(f"unit-{number}")) for number, each in enumerate(stores)]
        calls = storage.side_by_side([partial(each.commit, commit) for each, commit in zip(stores, commits, strict=True)])
        for number, call in enumerate(calls):
            if number == 1:
                for _ in range(2):
                    with pytest.raises(OwnershipLost):
                        call()
            else:
                call()
                call()
        assert [each.header.commit for each in stores] == [1, 0, 1, 1, 1, 1]
        mine = [store, *others[1:]]
        loads = storage.side_by_side([partial(each.load, ["unit-0", "unit-1", "unit-2"]) for each in mine])
        assert [set(load()) for load in loads] == [{"unit-0"}, {"unit-2"}, set(), set(), set()]
        assert taken.load(["unit-1"]) == {}

    def test_a_zombie_that_opened_late_does_not_stop_the_rightful_owner_for_long(self, harness, store):
        zombie = harness.make().open(PARTITION)
        with pytest.raises(OwnershipLost):
            put(store)
        rightful = harness.make().open(PARTITION)
        put(rightful, idle("a"))
        with pytest.raises(OwnershipLost):
            put(zombie, idle("zombie"))
        assert rightful.load(["a", "zombie"]).keys() == {"a"}

    def test_the_same_number_and_attempt_of_another_owner_is_no_repetition(self, harness, store):
        commit = put(store, idle("a"))
        taken = harness.make().open(PARTITION)
        taken.commit(commit)
        with pytest.raises(OwnershipLost):
            store.commit(commit)

    def test_the_owners_of_two_partitions_do_not_disturb_each_other(self, harness, store):
        other = harness.make().open(OTHER)
        for number in range(3):
            put(store, idle(f"here-{number}"))
            put(other, idle(f"there-{number}"))
        assert (store.header.commit, other.header.commit) == (3, 3)

    # All or nothing.

    def test_a_commit_with_an_impossible_change_in_its_middle_stores_nothing(self, storage, store):
        put(store, waiting("a"), added=(Pending(1, b"one"),), highest_number=1)
        broken = UnitChange("b", b"", WAITS, (StashEntry(1, b"one"), None))
        with pytest.raises((AttributeError, TypeError)):
            put(store, idle("a"), UnitChange("c", b""), broken, idle("d"), added=(Pending(2, b"two"),), published=1)
        self.assert_as_after_the_first(store)
        self.assert_as_after_the_first(storage.open(PARTITION))

    def test_a_commit_with_an_impossible_end_stores_nothing(self, store):
        put(store, waiting("a"), added=(Pending(1, b"one"),), highest_number=1)
        with pytest.raises((AttributeError, TypeError)):
            put(store, idle("a"), idle("b"), added=(Pending(2, b"two"), None), published=1)
        self.assert_as_after_the_first(store)
        put(store, idle("b"))

    def assert_as_after_the_first(self, store):
        assert store.load(["a", "b", "c", "d"]) == {"a": Snapshot("a", b"state of a", None, ())}
        assert list(store.waiting()) == [("a", WAITS)]
        assert list(store.pending()) == [Pending(1, b"one")]
        assert (store.header.next_offset, store.header.highest_number) == (1, 1)

    # Waiting units.

    def test_what_waits_is_found_with_its_index_fields_and_what_is_idle_is_not(self, store):
        retry = Waits(5, WaitKind.RETRY, 4, "customData:Büro", "FULL_PAIN001_AND_CUSTOM_DATA", 1_000, 2**40)
        put(store, waiting("a"), idle("b"), waiting("c", waits=retry))
        assert dict(store.waiting()) == {"a": WAITS, "c": retry}

    def test_a_unit_waits_until_a_change_says_that_it_does_not(self, store):
        put(store, waiting("a"), idle("b"))
        put(store, idle("a"), waiting("b"))
        assert dict(store.waiting()) == {"b": WAITS}
        later = Waits(99_000, WaitKind.DEADLINE, 1, "sequence:4", "SEQUENCE", 2, 1_400)
        put(store, waiting("b", waits=later))
        assert dict(store.waiting()) == {"b": later}

    # Retention.

    def test_the_caught_up_clock_comes_back(self, storage, store):
        put(store, idle("a"), caught_up_ms=2**40)
        assert store.header.caught_up_ms == 2**40
        assert storage.open(PARTITION).header.caught_up_ms == 2**40

    def test_an_idle_unit_goes_by_the_caught_up_clock_of_its_last_change(self, store):
        put(store, UnitChange("a", b"", data=b"data"), caught_up_ms=10)
        assert expire_all(store, 9) == 0
        assert store.load(["a"]).keys() == {"a"}
        expire_all(store, 10)
        assert store.load(["a"]) == {}

    def test_a_unit_in_which_something_waits_never_goes(self, store):
        put(store, waiting("a"), idle("b"))
        expire_all(store, 10**15)
        assert store.load(["a", "b"]).keys() == {"a"}
        assert list(store.waiting()) == [("a", WAITS)]

    def test_whether_any_unit_is_stored_is_known_to_the_next_owner_until_the_last_one_went(self, harness, storage, store):
        put(store, added=(Pending(1, b"one"),), highest_number=1)
        assert not store.has_units()
        put(store, idle("a"), waiting("b"))
        taken = harness.make().open(PARTITION)
        with pytest.raises(OwnershipLost):
            store.has_units()
        for change in ((), (idle("b"),)):
            put(taken, *change)
            expire_all(taken, -1)
            assert taken.has_units()
        put(taken, waiting("a"))
        expire_all(taken, 10**15)
        assert taken.has_units()
        put(taken, idle("a"), caught_up_ms=10**15)
        expire_all(taken, 10**15)
        put(taken)
        assert not taken.has_units()

    def test_a_change_postpones_the_end_of_a_unit(self, store):
        put(store, idle("a"), idle("b"))
        put(store, idle("a"), caught_up_ms=500)
        expire_all(store, 499)
        assert store.load(["a", "b"]).keys() == {"a"}
        expire_all(store, 500)
        assert store.load(["a"]) == {}

    def test_a_unit_that_stops_waiting_goes_by_the_clock_of_that_change(self, store):
        put(store, waiting("a"))
        put(store, idle("a"), caught_up_ms=5_000)
        expire_all(store, 4_999)
        assert store.load(["a"]).keys() == {"a"}
        expire_all(store, 5_000)
        assert store.load(["a"]) == {}

    def test_a_unit_in_memory_is_spared_with_all_that_its_next_commit_leaves_out(self, store):
        put(store, UnitChange("a", b"1", data=b"data"), UnitChange("b", b"1", data=b"data"))
        expire_all(store, 10, {"a"})
        put(store, UnitChange("a", b"2"), UnitChange("b", b"2"), caught_up_ms=11)
        assert store.load(["a", "b"]) == {"a": Snapshot("a", b"2", b"data", ()), "b": Snapshot("b", b"2", None, ())}

    def test_a_spared_unit_goes_once_it_has_left_memory(self, store):
        put(store, idle("a"), idle("b"))
        expire_all(store, 10, {"a"})
        assert store.load(["a", "b"]).keys() == {"a"}
        expire_all(store, 10)
        assert store.load(["a", "b"]) == {}

    def test_spared_units_hold_up_no_other(self, store):
        names = [f"unit-{number}" for number in range(2_000)]
        put(store, *map(idle, names))
        put(store, idle("other"), caught_up_ms=1)
        expire_all(store, 1, set(names))
        assert store.load(["other", *names]).keys() == set(names)

    def test_each_partition_has_a_clock_of_its_own(self, storage, store):
        other = storage.open(OTHER)
        put(store, idle("a"))
        put(other, idle("a"))
        expire_all(store, 10**15)
        put(other, idle("b"))
        assert store.load(["a"]) == {}
        assert other.load(["a", "b"]).keys() == {"a", "b"}

    def test_units_of_partitions_without_an_owner_stay(self, harness, storage, store):
        put(store, idle("a"), waiting("b"))
        storage.close()
        other = harness.make()
        expire_all(other.open(OTHER), 10**15)
        assert other.open(PARTITION).load(["a", "b"]).keys() == {"a", "b"}

    def test_a_unit_that_comes_again_has_nothing_of_the_one_that_went(self, store):
        put(store, UnitChange("a", b"old", None, (StashEntry(1, b"old"),), (), b"old"))
        expire_all(store, 10)
        put(store, UnitChange("a", b"new"), caught_up_ms=11)
        assert store.load(["a"]) == {"a": Snapshot("a", b"new", None, ())}

    def test_a_unit_that_is_loaded_after_all_goes_on_from_what_was_loaded(self, store):
        put(store, UnitChange("a", b"1", data=b"data"))
        store.expire(10, ())
        loaded = store.load(["a"])
        put(store, UnitChange("a", b"2"), caught_up_ms=11)
        assert store.load(["a"])["a"].data == (loaded["a"].data if loaded else None)

    def test_neither_header_nor_what_is_pending_ever_expires(self, storage, store):
        put(store, idle("a"), added=(Pending(1, b"one"),), highest_number=1, next_offset=7)
        while store.expire(10**15, ()):
            pass
        assert list(store.pending()) == [Pending(1, b"one")]
        assert storage.open(PARTITION).header.next_offset == 7

    def test_expiring_is_no_commit(self, store):
        put(store, idle("a"))
        store.expire(10, ())
        put(store, idle("b"), caught_up_ms=11)
        assert store.header.commit == 2

    def test_a_zombie_expires_nothing(self, storage, store):
        put(store, idle("a"), waiting("b"))
        owner = storage.open(PARTITION)
        with pytest.raises(OwnershipLost):
            store.expire(10**15, ())
        put(owner)
        assert owner.load(["a", "b"]).keys() == {"a", "b"}

    def test_in_the_initial_state_no_unit_is_known_whoever_ends_what_was_begun(self, harness, store):
        put(store, waiting("a"), idle("b"), UnitChange("c", b"", WAITS, (StashEntry(1, b"old"),), (), b"old"), highest_number=4)
        store.commit(begin_initial_state(store.header, 0, "begins"))
        assert (store.header.next_offset, store.header.heal_offset, is_unfinished(store.header)) == (0, 1, True)
        owner = harness.make().open(PARTITION)
        assert is_unfinished(owner.header)
        end_initial_state(PARTITION, owner, lambda: f"attempt-{next(_attempts)}")
        assert (owner.waiting(), owner.load(["a", "b", "c"]), owner.has_units()) == ([], {}, False)
        assert (owner.header.next_offset, owner.header.highest_number, is_unfinished(owner.header)) == (0, 4, False)
        put(owner, UnitChange("c", b"new"))
        assert harness.make().open(PARTITION).load(["c"]) == {"c": Snapshot("c", b"new", None, ())}

    def test_one_call_expires_a_bounded_number_of_units(self, store):
        put(store, *(idle(f"unit-{number}") for number in range(2_500)))
        assert store.expire(0, ()) < 2_500
        expire_all(store, 0)
        assert store.load([f"unit-{number}" for number in range(2_500)]) == {}
