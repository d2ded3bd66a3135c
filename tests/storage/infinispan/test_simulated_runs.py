"""Storage `infinispan`: random runs with failures at any request. The runs must notice planted mistakes."""

import msgspec
import pytest

from resequencer.record import Partition
from storage.infinispan import partition as infinispan_commit
from storage.infinispan.cache import PartitionKeys
from storage.infinispan.layout import index
from storage.infinispan.layout.index import IndexBlock
from storage.infinispan.layout.page_table import PageTable
from storage.infinispan.layout.segment import ExpiredUnits, ExpiryWatermark
from storage.infinispan.layout.window import Window
from storage.infinispan.partition import CommitAttempt, InfinispanPartitionStore, Preparation
from storage.infinispan.partition_state import Opening, PartitionState
from tests.storage.infinispan.memory import MemoryServer
from tests.storage.infinispan.simulated_runs import RETENTION_MS, SimulatedRun, live

OTHER = Partition("T", 1)
STEPS = 120
KINDS = ({}, {"failing": 0.05}, {"dying": 0.05}, {"failing": 0.03, "dying": 0.03})


def run(seed: int) -> SimulatedRun:
    """Do a run. In every fifth, another partition with a clock far ahead shares the cache."""
    server = MemoryServer()
    done = SimulatedRun(seed, server, **KINDS[seed % 4])
    beside = [SimulatedRun(-1 - seed, server, OTHER, ahead_ms=10**6)] if seed % 5 == 0 else []
    live(STEPS, done, *beside)
    return done


@pytest.mark.slow
def test_whatever_fails_the_owner_is_told_what_was_committed():
    for seed in range(12):
        run(seed)


@pytest.mark.nightly("storages", minutes=3)
def test_whatever_the_seed_the_owner_is_told_what_was_committed(search):
    for seed in search.seeds():
        run(seed)


@pytest.mark.slow
def test_units_with_the_same_fingerprint_are_told_apart(monkeypatch):
    monkeypatch.setattr(index, "_fingerprint", lambda unit: len(unit) * 7 % 3)
    for seed in range(12):
        live(STEPS, SimulatedRun(seed, MemoryServer()))


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_nothing_is_left_in_the_cache_that_is_not_needed(seed):
    done = run(seed)
    assert done.owner.store._contents.page_table.head > 50
    assert done.leaked() == set()


@pytest.mark.slow
def test_a_death_leaves_no_more_than_what_was_on_its_way():
    for seed in range(2, 60, 4):
        done = run(seed)
        assert len(done.leaked()) <= 8 * done.exits


# Mistakes.


def counter_is_not_asked(patch):
    def move(link, expected, update):
        link._cache.compare_and_set(link.name, link.find_version().packed(), update.packed())
        return True

    patch.setattr(PartitionKeys, "move", move)


def garbage_goes_before_the_commit_counts(patch):
    make = CommitAttempt.make

    def make_too_early(attempt):
        for name in attempt.prepared.segment.manifest.garbage:
            attempt._link.delete(name)
        make(attempt)

    patch.setattr(CommitAttempt, "make", make_too_early)


def what_may_count_is_cleared_away(patch):
    def clear_away(attempt):
        attempt._is_unanswered = False
        original(attempt)

    original = CommitAttempt._clear_away
    patch.setattr(CommitAttempt, "_clear_away", clear_away)


def a_number_that_was_tried_is_decided_anew(patch):
    prepare = InfinispanPartitionStore._see_that_it_is_next

    def forget_what_was_tried(store, commit):
        store._tried = None
        prepare(store, commit)

    patch.setattr(InfinispanPartitionStore, "_see_that_it_is_next", forget_what_was_tried)


def dead_copies_are_not_noted(patch):
    patch.setattr(PageTable, "is_dead", lambda page_table, page, slot: False)


def dead_copies_are_noted_in_memory_only(patch):
    original = infinispan_commit.index_block_of
    patch.setattr(infinispan_commit, "index_block_of", lambda first, pages, woken, dead: original(first, pages, woken, ()))


def woken_units_are_not_noted(patch):
    original = infinispan_commit.index_block_of
    patch.setattr(infinispan_commit, "index_block_of", lambda first, pages, woken, dead: original(first, pages, (), dead))


def nothing_is_pinned(patch):
    patch.setattr(PageTable, "pin", lambda page_table, pages: None)


def pages_with_waiting_units_are_given_up(patch):
    patch.setattr(PageTable, "is_needed", lambda page_table, page: page in page_table._pins)


def what_begins_anew_goes_on(patch):
    patch.setattr(PartitionState, "is_forgotten", lambda contents, unit: False)


def units_in_memory_are_not_spared(patch):
    original = ExpiredUnits.move
    patch.setattr(ExpiredUnits, "move", lambda forgotten, until, in_memory: original(forgotten, until, ()))


def only_what_was_loaded_is_spared(patch):
    def take_up(forgotten, watermark, changes):
        original(forgotten, watermark, ())

    original = ExpiredUnits.take_up
    patch.setattr(ExpiredUnits, "take_up", take_up)


def only_what_was_changed_is_spared(patch):
    load = InfinispanPartitionStore.load

    def load_unnoted(store, units):
        with pytest.MonkeyPatch.context() as within:
            within.setattr(ExpiredUnits, "note_in_memory", lambda forgotten, record: None)
            return load(store, units)

    patch.setattr(InfinispanPartitionStore, "load", load_unnoted)


def what_is_spared_is_not_written(patch):
    original = ExpiredUnits.next_watermark
    patch.setattr(ExpiredUnits, "next_watermark", lambda forgotten, changes: ExpiryWatermark(original(forgotten, changes).until))


def changes_at_the_watermark_are_not_spared(patch):
    original = ExpiredUnits.next_watermark
    patch.setattr(ExpiredUnits, "next_watermark", lambda forgotten, changes: original(forgotten, ()))


def pages_of_spared_units_are_given_up(patch):
    patch.setattr(PartitionState, "pin_spared", lambda contents: None)


def spared_units_go_with_the_others(patch):
    def move(forgotten, until, in_memory):
        spared = dict(forgotten._spared)
        original(forgotten, until, in_memory)
        forgotten._spared = {unit: at for unit, at in forgotten._spared.items() if unit not in spared or unit in in_memory}

    original = ExpiredUnits.move
    patch.setattr(ExpiredUnits, "move", move)


def spared_units_stay_for_good(patch):
    class Everything:
        def __contains__(self, unit):
            return True

    original = ExpiredUnits.move
    patch.setattr(ExpiredUnits, "move", lambda forgotten, until, in_memory: original(forgotten, until, Everything()))


def the_watermark_goes_back_with_the_retention(patch):
    def move(forgotten, until, in_memory):
        forgotten._next = -1
        original(forgotten, until, in_memory)

    original = ExpiredUnits.move
    patch.setattr(ExpiredUnits, "move", move)


def an_opener_begins_with_a_watermark_of_its_own(patch):
    original = Opening._segment_on

    def without_it(opening, last, row):
        segment = original(opening, last, row)
        return msgspec.structs.replace(segment, manifest=msgspec.structs.replace(segment.manifest, watermark=ExpiryWatermark()))

    patch.setattr(Opening, "_segment_on", without_it)


def one_watermark_is_that_of_all_partitions(patch):
    latest = []

    def move(forgotten, until, in_memory):
        latest.append(until)
        original(forgotten, until, in_memory)

    original = ExpiredUnits.move
    patch.setattr(ExpiredUnits, "move", move)
    has = ExpiredUnits.has
    patch.setattr(
        ExpiredUnits, "has", lambda forgotten, record: has(forgotten, record) or record.is_idle_since(max(latest, default=-1))
    )


def pages_are_given_up_a_retention_too_early(patch):
    original = PageTable.is_old
    patch.setattr(PageTable, "is_old", lambda page_table, page, until: original(page_table, page, until + RETENTION_MS))


def bases_stay_after_a_compaction(patch):
    compaction = Window.compaction

    def keep_bases(window, units, progress):
        bases = {unit: recent.bases for unit in units if (recent := window._recent.get(unit)) is not None}
        compaction(window, units, progress)
        for unit, pages in bases.items():
            if unit in window:
                window._recent[unit].bases = pages

    patch.setattr(Window, "compaction", keep_bases)


def a_longer_index_block_forgets_its_beginning(patch):
    patch.setattr(IndexBlock, "followed_by", lambda block, later: later)


def what_is_pending_is_not_carried_on(patch):
    def pending(preparation, commit):
        return tuple((each.number, each.body) for each in commit.added if each.number > commit.published)

    patch.setattr(Preparation, "_pending", pending)


def an_opener_passes_over_the_last_segment(patch):
    original = Opening._segment_on

    def without_it(opening, last, row):
        segment = original(opening, last, row)
        manifest = segment.manifest
        return msgspec.structs.replace(segment, manifest=msgspec.structs.replace(manifest, window=last.manifest.window))

    patch.setattr(Opening, "_segment_on", without_it)


FAULTS = (
    counter_is_not_asked,
    garbage_goes_before_the_commit_counts,
    what_may_count_is_cleared_away,
    a_number_that_was_tried_is_decided_anew,
    dead_copies_are_not_noted,
    dead_copies_are_noted_in_memory_only,
    woken_units_are_not_noted,
    nothing_is_pinned,
    pages_with_waiting_units_are_given_up,
    what_begins_anew_goes_on,
    units_in_memory_are_not_spared,
    only_what_was_loaded_is_spared,
    only_what_was_changed_is_spared,
    what_is_spared_is_not_written,
    changes_at_the_watermark_are_not_spared,
    pages_of_spared_units_are_given_up,
    spared_units_go_with_the_others,
    spared_units_stay_for_good,
    the_watermark_goes_back_with_the_retention,
    an_opener_begins_with_a_watermark_of_its_own,
    one_watermark_is_that_of_all_partitions,
    pages_are_given_up_a_retention_too_early,
    bases_stay_after_a_compaction,
    a_longer_index_block_forgets_its_beginning,
    what_is_pending_is_not_carried_on,
    an_opener_passes_over_the_last_segment,
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: getattr(fault, "__name__", None))
def test_a_planted_mistake_is_noticed(fault, monkeypatch):
    fault(monkeypatch)
    for seed in range(400):
        try:
            done = run(seed)
        except Exception:
            return
        if seed % 4 == 0 and done.leaked():
            return
    raise AssertionError(f"no simulated run noticed that {fault.__name__.replace('_', ' ')}")
