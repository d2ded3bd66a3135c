"""The contract of storage views (storage/view_port.py), as tests that each implementation runs on the real thing.

A storage's test file derives from `StorageViewContract` and gives the fixture `harness`.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from threading import Event, Thread
from typing import Any, Protocol

import pytest
from harness.waiting import DEADLINE_SECONDS
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import (
    Commit,
    PartitionStore,
    Snapshot,
    StashEntry,
    Storage,
    StorageUnavailable,
    UnitChange,
    WaitKind,
    Waits,
)
from storage.view_port import StorageView, UnitView, WaitingChanges
from tests.storage.contract import OTHER, PARTITION, WAITS, expire_all, following, idle, put, waiting
from tests.storage.model import UNITS, StorageMachine

READS = 1_000
MANY = 5_000
"""More units than a portion has."""


class ViewHarness(Protocol):
    """Gives storages and views that share one set of data, empty at first."""

    def make(self) -> Storage: ...
    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None: ...
    def make_view(self) -> StorageView:
        """A view of the data, as another process would have it."""
        ...

    def dump(self) -> object:
        """All that is stored, to be compared."""
        ...


class Copy:
    """What a program keeps of a partition's waiting units, as the port tells it to."""

    def __init__(self, view: StorageView, partition: Partition = PARTITION) -> None:
        self.view = view
        self.partition = partition
        self.marker: str | None = None
        self.waits: dict[str, Waits] = {}

    def follow(self) -> WaitingChanges | None:
        """Take up what changed. If it cannot be read to its end, begin again with the marker of before."""
        while True:
            known = dict(self.waits)
            changes = self.view.find_waiting(self.partition, self.marker)
            if changes is None:
                return None
            try:
                self._take_up(changes)
            except StorageUnavailable:
                self.waits = known
            else:
                return changes

    def _take_up(self, changes: WaitingChanges) -> None:
        if changes.is_whole:
            self.waits = {}
        for portion in changes.portions:
            assert 0 < len(portion) <= 10_000
            for unit, waits in portion:
                if waits is None:
                    self.waits.pop(unit, None)
                else:
                    self.waits[unit] = waits
        self.marker = changes.marker


def waits_at(wakes_at: int, stashed: int = 1) -> Waits:
    return Waits(wakes_at, WaitKind.DEADLINE, 0, "sequence:3", "SEQUENCE", stashed, 700)


@contextmanager
def committing(harness: ViewHarness, change: Any) -> Iterator[None]:
    """Have an owner in a thread commit `change(number)` again and again, from before this begins until it has ended."""
    begun, ending, failures = Event(), Event(), []

    def own() -> None:
        try:
            with closing(harness.make()) as storage:
                store = storage.open(PARTITION)
                for number in count(1):
                    put(store, *change(number))
                    begun.set()
                    if ending.is_set():
                        return
        except BaseException as error:
            failures.append(error)
            begun.set()

    owner = Thread(target=own)
    owner.start()
    try:
        assert begun.wait(DEADLINE_SECONDS)
        yield
        assert owner.is_alive() or failures
    finally:
        ending.set()
        owner.join()
    assert not failures, failures


class StorageViewContract:
    reads = READS
    enough = 100
    """So many waiting units that a few changes of them are not listed as the whole."""

    @pytest.fixture
    def view(self, harness: ViewHarness) -> Iterator[StorageView]:
        with closing(harness.make_view()) as view:
            yield view

    @pytest.fixture
    def store(self, harness: ViewHarness) -> PartitionStore:
        return harness.make().open(PARTITION)

    # Units.

    def test_a_view_opened_before_the_data_exist_finds_nothing_and_later_what_is_there(self, harness, view):
        assert view.find_header(PARTITION) is None
        assert view.find_unit(PARTITION, "a") is None
        assert view.find_waiting(PARTITION, None) is None
        put(harness.make().open(PARTITION), waiting("a"))
        assert view.find_header(PARTITION).commit == 1
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"state of a", None, ()), WAITS)
        copy = Copy(view)
        copy.follow()
        assert copy.waits == {"a": WAITS}

    def test_the_header_is_that_of_the_last_commit_or_takeover(self, harness, view, store):
        assert view.find_header(PARTITION) == store.header
        assert view.find_header(PARTITION).is_empty
        put(store, next_offset=2**60, highest_number=7, heal_offset=3, source="a topic's id/a group", caught_up_ms=9)
        assert view.find_header(PARTITION) == store.header
        assert view.find_header(PARTITION) == harness.make_view().find_header(PARTITION)
        assert view.find_header(PARTITION) != harness.make().open(PARTITION).header == view.find_header(PARTITION)

    def test_a_unit_is_as_its_last_commit_left_it(self, view, store):
        put(store, UnitChange("a", b"1", WAITS, (StashEntry(9, b"nine"), StashEntry(2**53, b"late")), data=b"data"))
        stash = (StashEntry(9, b"nine"), StashEntry(2**53, b"late"))
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"1", b"data", stash), WAITS)
        put(store, UnitChange("a", b"2", waits_at(5, 2), (StashEntry(1, b"one"),), (9,)))
        stash = (StashEntry(1, b"one"), StashEntry(2**53, b"late"))
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"2", b"data", stash), waits_at(5, 2))
        put(store, UnitChange("a", b"3", None, (), (1, 2**53), b""))
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"3", b"", ()), None)

    def test_a_unit_stays_in_view_however_many_commits_follow(self, view, store):
        put(store, waiting("a"), UnitChange("b", b"idle", data=b"data"))
        for number in range(60):
            put(store, *(UnitChange(f"unit-{number}-{each}", b"x" * 100) for each in range(5)))
            assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"state of a", None, ()), WAITS)
            assert view.find_unit(PARTITION, "b") == UnitView(Snapshot("b", b"idle", b"data", ()), None)
            assert view.find_unit(PARTITION, f"unit-{number}-4").snapshot.state == b"x" * 100

    def test_an_unknown_unit_and_an_unknown_partition_are_not_found(self, view, store):
        put(store, waiting("a"))
        unknown = Partition("ANOTHER_TOPIC", 0)
        assert view.find_unit(PARTITION, "b") is None
        assert view.find_unit(unknown, "a") is None
        assert view.find_header(unknown) is None
        assert view.find_waiting(unknown, None) is None

    @pytest.mark.parametrize("unit", ["ü\x00", "a:b", "{a}", "*", " ", "\N{SLIGHTLY SMILING FACE}" * 64, "'; --"])
    def test_any_character_may_stand_in_an_id(self, view, store, unit):
        put(store, UnitChange(unit, b"1", WAITS, (StashEntry(1, b"one"),)), idle("a"))
        assert view.find_unit(PARTITION, unit) == UnitView(Snapshot(unit, b"1", None, (StashEntry(1, b"one"),)), WAITS)
        copy = Copy(view)
        copy.follow()
        assert copy.waits == {unit: WAITS}

    def test_a_large_unit_comes_whole(self, view, store):
        stash = tuple(StashEntry(offset, b"x" * 10_000) for offset in range(1_000))
        large = bytes(range(256)) * 20_000
        put(store, UnitChange("a", large, WAITS, stash, (), large))
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", large, large, stash), WAITS)

    def test_partitions_are_told_apart(self, harness, view, store):
        put(store, UnitChange("a", b"here", WAITS))
        put(harness.make().open(OTHER), UnitChange("a", b"there"), waiting("b"))
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"here", None, ()), WAITS)
        assert view.find_unit(OTHER, "a") == UnitView(Snapshot("a", b"there", None, ()), None)
        here, there = Copy(view), Copy(view, OTHER)
        here.follow()
        there.follow()
        assert (here.waits, there.waits) == ({"a": WAITS}, {"b": WAITS})

    def test_expired_units_are_gone_and_others_are_not(self, view, store):
        put(store, idle("a"), idle("b"), waiting("c"))
        store.load(["b"])
        expire_all(store, 10, {"b"})
        assert view.find_unit(PARTITION, "a") is None
        assert view.find_unit(PARTITION, "b").snapshot.state == b"state of b"
        assert view.find_unit(PARTITION, "c").waits == WAITS
        put(store, UnitChange("a", b"again"), caught_up_ms=11)
        assert view.find_unit(PARTITION, "a") == UnitView(Snapshot("a", b"again", None, ()), None)

    # What waits.

    def test_what_waits_is_listed_whole_at_first(self, view, store):
        retry = Waits(5, WaitKind.RETRY, 4, "customData:Büro", "FULL_PAIN001_AND_CUSTOM_DATA", 1_000, 2**40)
        put(store, waiting("a"), idle("b"), waiting("c", waits=retry))
        copy = Copy(view)
        assert copy.follow().is_whole
        assert copy.waits == {"a": WAITS, "c": retry}

    def test_nothing_changed_since_the_marker_until_something_is_committed(self, harness, view, store):
        copy = Copy(view)
        assert copy.follow().is_whole
        assert copy.follow() is None
        put(store, waiting("a"))
        assert copy.follow() is not None
        assert copy.follow() is None
        assert harness.make_view().find_waiting(PARTITION, copy.marker) is None
        put(store)
        copy.follow()
        assert (copy.waits, copy.follow()) == ({"a": WAITS}, None)

    def test_units_that_came_moved_and_went_are_among_the_changes(self, view, store):
        put(store, waiting("stays"), waiting("moves"), waiting("goes"))
        copy = Copy(view)
        copy.follow()
        put(store, waiting("comes"), waiting("moves", waits_at(4)), idle("goes"), idle("was never there"))
        copy.follow()
        assert copy.waits == {"stays": WAITS, "comes": WAITS, "moves": waits_at(4)}
        put(store, idle("comes"))
        put(store, waiting("comes", waits_at(9)))
        put(store, idle("stays"))
        copy.follow()
        assert copy.waits == {"comes": waits_at(9), "moves": waits_at(4)}

    def test_a_marker_of_long_ago_still_leads_to_what_waits_now(self, view, store):
        put(store, *(waiting(f"old-{number}") for number in range(50)))
        copy = Copy(view)
        copy.follow()
        for number in range(200):
            put(store, UnitChange(f"new-{number}", b"x" * 200, waits_at(number)), *([idle(f"old-{number}")] * (number < 50)))
        copy.follow()
        assert copy.waits == {f"new-{number}": waits_at(number) for number in range(200)}

    @pytest.mark.parametrize("marker", ["", "0123456789abcdef/7", "12ab34cd/1", "nonsense", "a/b/c", "/"])
    def test_an_unknown_marker_is_answered_with_the_whole(self, view, store, marker):
        put(store, waiting("a"))
        copy = Copy(view)
        copy.marker, copy.waits = marker, {"left over": WAITS}
        assert copy.follow().is_whole
        assert copy.waits == {"a": WAITS}

    def test_a_partition_that_is_gone_since_the_marker_has_a_whole_of_nothing(self, view):
        copy = Copy(view)
        copy.marker, copy.waits = "0123456789abcdef/7", {"left over": WAITS}
        assert copy.follow().is_whole
        assert copy.waits == {}
        assert copy.follow() is None

    def test_a_takeover_alone_changes_nothing_and_what_its_owner_commits_is_found(self, harness, view, store):
        put(store, waiting("a"), waiting("b"))
        copy = Copy(view)
        copy.follow()
        for _ in range(3):
            taken = harness.make().open(PARTITION)
        assert copy.follow() is None
        put(taken, idle("a"), waiting("c"))
        copy.follow()
        assert copy.waits == {"b": WAITS, "c": WAITS}
        put(harness.make().open(PARTITION), waiting("a"), idle("b"))
        copy.follow()
        assert copy.waits == {"a": WAITS, "c": WAITS}

    def test_what_waits_never_expires_from_the_listing(self, view, store):
        put(store, waiting("a"), idle("b"))
        copy = Copy(view)
        copy.follow()
        expire_all(store, 10**15)
        copy.follow()
        assert copy.waits == {"a": WAITS}

    def test_thousands_that_wait_come_in_portions(self, view, store):
        changes = [waiting(f"unit-{number}", waits_at(number)) for number in range(MANY)]
        for begin in range(0, MANY, 1_000):
            put(store, *changes[begin : begin + 1_000], *(idle(f"idle-{begin}-{number}") for number in range(1_000)))
        copy = Copy(view)
        copy.follow()
        assert copy.waits == {change.unit: change.waits for change in changes}

    def test_a_reading_may_be_abandoned(self, view, store):
        put(store, *(waiting(f"unit-{number}") for number in range(MANY)))
        next(view.find_waiting(PARTITION, None).portions)
        view.find_waiting(PARTITION, None)
        put(store, *(idle(f"unit-{number}") for number in range(MANY)))
        copy = Copy(view)
        copy.follow()
        assert copy.waits == {}

    def test_a_view_can_be_used_after_it_was_closed(self, view, store):
        put(store, waiting("a"))
        for _ in range(2):
            assert view.find_unit(PARTITION, "a").waits == WAITS
            view.close()

    def test_only_what_changed_since_the_marker_is_listed(self, view, store):
        put(store, *(waiting(f"unit-{number}") for number in range(self.enough)))
        copy = Copy(view)
        copy.follow()
        expected = dict(copy.waits)
        put(store, idle("unit-1"), idle("new-idle"))
        put(store)
        put(store, waiting("unit-2", waits_at(7)), waiting("unit-3", waits_at(8)), heal_offset=9)
        put(store, waiting("new"), waiting("came and went"), idle("unit-3"))
        put(store, idle("came and went"))
        changes = view.find_waiting(PARTITION, copy.marker)
        listed = dict(entry for portion in changes.portions for entry in portion)
        assert not changes.is_whole
        assert listed.pop("new-idle", None) is None
        assert listed == {"unit-1": None, "unit-2": waits_at(7), "unit-3": None, "new": WAITS, "came and went": None}
        copy.follow()
        del expected["unit-1"], expected["unit-3"]
        assert copy.waits == {**expected, "unit-2": waits_at(7), "new": WAITS}

    def test_changes_are_listed_across_takeovers(self, harness, view, store):
        put(store, *(waiting(f"unit-{number}") for number in range(self.enough)))
        copy = Copy(view)
        copy.follow()
        put(store, idle("unit-1"))
        put(harness.make().open(PARTITION), idle("unit-2"))
        harness.make().open(PARTITION)
        put(harness.make().open(PARTITION), idle("unit-3"), waiting("unit-1", waits_at(4)))
        assert not copy.follow().is_whole
        expected = {f"unit-{number}": WAITS for number in range(self.enough) if number not in (2, 3)}
        assert copy.waits == {**expected, "unit-1": waits_at(4)}

    def test_what_an_owner_that_lost_the_partition_tried_to_commit_is_not_among_the_changes(self, harness, view, store):
        put(store, waiting("a"), waiting("b"))
        copy = Copy(view)
        copy.follow()
        owner = harness.make().open(PARTITION)
        with pytest.raises(OwnershipLost):
            put(store, idle("a"))
        put(owner, idle("b"))
        with pytest.raises(OwnershipLost):
            put(store, idle("a"))
        copy.follow()
        assert copy.waits == {"a": WAITS}

    def test_a_commit_that_is_stored_and_repeated_counts_once(self, harness, view, store):
        put(store, waiting("a"), waiting("b"))
        copy = Copy(view)
        copy.follow()
        second = following(store, idle("a"))
        harness.commit_unanswered(store, second)
        copy.follow()
        store.commit(second)
        assert copy.follow() is None
        put(store, waiting("c"))
        copy.follow()
        assert copy.waits == {"b": WAITS, "c": WAITS}

    @pytest.mark.parametrize("ahead", [1, 2, 1_000])
    def test_a_marker_of_a_commit_that_the_storage_has_lost_leads_to_the_whole(self, harness, view, store, ahead):
        put(store, waiting("a"))
        lost = f"{store.header.token}/{store.header.commit + ahead}"
        copy = Copy(view)
        copy.marker, copy.waits = lost, {"lost": WAITS}
        assert copy.follow().is_whole
        assert copy.waits == {"a": WAITS}
        newer = harness.make().open(PARTITION)
        for _ in range(3):
            put(newer)
        copy.marker, copy.waits = lost, {"lost": WAITS}
        assert copy.follow().is_whole
        assert copy.waits == {"a": WAITS}

    # Beside an owner.

    def test_a_view_changes_nothing_and_the_owner_goes_on(self, harness, view, store):
        put(store, UnitChange("a", b"1", WAITS, (StashEntry(1, b"one"),), data=b"data"), idle("b"))
        before, copy = harness.dump(), Copy(view)
        copy.follow()
        copy.follow()
        for unit in ("a", "b", "unknown"):
            view.find_unit(PARTITION, unit)
        view.find_unit(OTHER, "a")
        view.find_header(OTHER)
        view.find_waiting(OTHER, None)
        view.close()
        assert harness.dump() == before
        put(store, UnitChange("a", b"2", None, (), (1,)))
        assert store.header.commit == 2
        assert harness.dump() != before

    def test_a_unit_is_of_one_commit_while_its_owner_commits(self, harness, view):
        def change(number: int) -> Iterator[UnitChange]:
            body = b"%d" % number
            stash, gone = tuple(StashEntry(number + each, body) for each in range(3)), tuple(range(number - 1, number + 2))
            yield UnitChange("a", body, waits_at(number, number), stash, gone, body)
            yield UnitChange(f"other-{number}", b"x" * 300)

        seen = []
        with committing(harness, change):
            while len(seen) < self.reads or (len(set(seen)) < 3 and len(seen) < 100 * self.reads):
                found = view.find_unit(PARTITION, "a")
                number = int(found.snapshot.state)
                stash = tuple(StashEntry(number + each, b"%d" % number) for each in range(3))
                expected = Snapshot("a", b"%d" % number, b"%d" % number, stash)
                assert found == UnitView(expected, waits_at(number, number))
                seen.append(number)
        assert len(set(seen)) > 2
        assert seen == sorted(seen)

    def test_no_unit_that_waits_throughout_is_left_out_while_its_owner_moves_it(self, harness, view, store):
        """Each commit turns the order of their instants round."""
        units = [f"unit-{number}" for number in range(MANY)]
        put(store, *(waiting(unit, waits_at(number)) for number, unit in enumerate(units)))

        def change(number: int) -> Iterator[UnitChange]:
            for at, unit in enumerate(units):
                if at % 10 == number % 10:
                    yield waiting(unit, waits_at(MANY - at if number // 10 % 2 else at))

        copy = Copy(view)
        with committing(harness, change):
            for _ in range(5):
                copy.marker = None
                copy.follow()
                assert copy.waits.keys() == set(units)

    def test_a_copy_that_follows_a_busy_owner_ends_as_the_owner(self, harness, view):
        units = [f"unit-{number}" for number in range(300)]

        def change(number: int) -> Iterator[UnitChange]:
            for each in range(number % 7, 300, 7):
                yield waiting(units[each], waits_at(number)) if (number + each) % 3 else idle(units[each])

        copy = Copy(view)
        with committing(harness, change):
            for _ in range(30):
                copy.follow()
        copy.follow()
        assert copy.waits == dict(harness.make().open(PARTITION).waiting())


class ViewMachine(StorageMachine):
    """The random runs of the storage, with a view that looks at any moment and a copy of what waits that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[Partition, Copy] = {}
        self.past: list[Copy] = []

    @rule(partition=st.sampled_from([PARTITION, OTHER]), is_new=st.booleans())
    def follow(self, partition: Partition, is_new: bool) -> None:
        if is_new or partition not in self.copies:
            self.copies[partition] = Copy(self.find_view(), partition)
        self.check_copy(self.copies[partition])

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def follow_from_long_ago(self, data: Any) -> None:
        """A copy with the marker of any earlier look, as a console that was away for so long has it."""
        self.check_copy(data.draw(st.sampled_from(self.past)))

    def check_copy(self, copy: Copy) -> None:
        before = Copy(copy.view, copy.partition)
        before.marker, before.waits = copy.marker, dict(copy.waits)
        self.past = [*self.past[-9:], before]
        copy.follow()
        units = self.model[copy.partition].units
        assert copy.waits == {name: unit.waits for name, unit in units.items() if unit.waits is not None}

    @rule(partition=st.sampled_from([PARTITION, OTHER]))
    def look(self, partition: Partition) -> None:
        model, view = self.model[partition], self.find_view()
        for name in (*UNITS, "missing"):
            unit = model.units.get(name)
            expected = None if unit is None else UnitView(unit.snapshot(name), unit.waits)
            assert view.find_unit(partition, name) == expected
        header = view.find_header(partition)
        assert (header is None) == (model.token is None)
        if header is not None:
            assert model.is_at(header)
            self.check_progress(header, model)

    def find_view(self) -> StorageView:
        if not hasattr(self, "view"):
            self.view = self.harness.make_view()
        return self.view

    def teardown(self) -> None:
        if hasattr(self, "view"):
            self.view.close()
        super().teardown()
