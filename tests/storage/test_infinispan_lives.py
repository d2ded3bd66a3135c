"""Storage `infinispan`: random lives with failures at any request, and planted mistakes that these lives must notice."""

import msgspec
import pytest

from storage import infinispan_commit, infinispan_directory
from storage.infinispan_archive import Archive
from storage.infinispan_attempt import Attempt
from storage.infinispan_commit import Preparation
from storage.infinispan_contents import Contents
from storage.infinispan_leaf import Leaf
from storage.infinispan_link import PartitionLink
from storage.infinispan_opening import Opening
from storage.infinispan_partition import InfinispanPartitionStore
from storage.infinispan_window import Window
from tests.storage.infinispan_lives import Life

STEPS = 120
KINDS = ({}, {"failing": 0.05}, {"dying": 0.05}, {"failing": 0.03, "dying": 0.03})


def life(seed: int) -> Life:
    lived = Life(seed, grace_ms=300 * (seed // 4 % 2), **KINDS[seed % 4])
    lived.live(STEPS)
    lived.clear_up()
    return lived


@pytest.mark.parametrize("first", range(0, 60, 12))
def test_whatever_fails_the_owner_is_told_what_was_committed(first):
    for seed in range(first, first + 12):
        life(seed)


def test_units_with_the_same_fingerprint_are_told_apart(monkeypatch):
    monkeypatch.setattr(infinispan_directory, "_fingerprint", lambda unit: len(unit) * 7 % 3)
    for seed in range(12):
        lived = Life(seed)
        lived.live(STEPS)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_nothing_is_left_in_the_cache_that_nobody_needs(seed):
    lived = life(seed)
    assert lived.owner.store._contents.archive.head > 50
    assert lived.leaked() == set()


def test_a_death_leaves_no_more_than_what_was_on_its_way():
    for seed in range(2, 60, 4):
        lived = life(seed)
        assert len(lived.leaked()) <= 8 * lived.deaths


# Mistakes.


def counter_is_not_asked(patch):
    def move(link, expected, update):
        link._cache.compare_and_set(link.name, link.find_stand().packed(), update.packed())
        return True

    patch.setattr(PartitionLink, "move", move)


def garbage_goes_before_the_commit_counts(patch):
    make = Attempt.make

    def make_too_early(attempt):
        for name in attempt.prepared.segment.manifest.garbage:
            attempt._link.delete(name)
        make(attempt)

    patch.setattr(Attempt, "make", make_too_early)


def what_may_count_is_cleared_away(patch):
    def clear_away(attempt):
        attempt._is_unanswered = False
        original(attempt)

    original = Attempt._clear_away
    patch.setattr(Attempt, "_clear_away", clear_away)


def a_number_that_was_tried_is_decided_anew(patch):
    prepare = InfinispanPartitionStore._see_that_it_is_next

    def forget_what_was_tried(store, commit):
        store._tried = None
        prepare(store, commit)

    patch.setattr(InfinispanPartitionStore, "_see_that_it_is_next", forget_what_was_tried)


def dead_copies_are_not_noted(patch):
    patch.setattr(Archive, "is_dead", lambda archive, page, slot: False)


def dead_copies_are_noted_in_memory_only(patch):
    original = infinispan_commit.leaf_of
    patch.setattr(infinispan_commit, "leaf_of", lambda first, pages, woken, dead: original(first, pages, woken, ()))


def woken_units_are_not_noted(patch):
    original = infinispan_commit.leaf_of
    patch.setattr(infinispan_commit, "leaf_of", lambda first, pages, woken, dead: original(first, pages, (), dead))


def nothing_is_pinned(patch):
    patch.setattr(Archive, "pin", lambda archive, pages: None)


def pages_with_waiting_units_are_given_up(patch):
    patch.setattr(Archive, "is_needed", lambda archive, page: page in archive._pins)


def units_in_use_are_given_up(patch):
    patch.setattr(Contents, "is_in_use", lambda contents, unit: False)


def what_begins_anew_goes_on(patch):
    original = infinispan_commit.record_of
    patch.setattr(infinispan_commit, "record_of", lambda change, begins: original(change, begins=False))


def bases_stay_after_a_fold(patch):
    fold = Window.fold

    def keep_bases(window, units, progress):
        bases = {unit: recent.bases for unit in units if (recent := window._recent.get(unit)) is not None}
        fold(window, units, progress)
        for unit, pages in bases.items():
            if unit in window:
                window._recent[unit].bases = pages

    patch.setattr(Window, "fold", keep_bases)


def a_longer_leaf_forgets_its_beginning(patch):
    patch.setattr(Leaf, "followed_by", lambda leaf, later: later)


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
    pytest.param(units_in_use_are_given_up, marks=pytest.mark.slow),
    what_begins_anew_goes_on,
    bases_stay_after_a_fold,
    a_longer_leaf_forgets_its_beginning,
    what_is_pending_is_not_carried_on,
    an_opener_passes_over_the_last_segment,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: getattr(fault, "__name__", None))
def test_a_planted_mistake_is_noticed(fault, monkeypatch):
    fault(monkeypatch)
    for seed in range(400):
        try:
            lived = life(seed)
        except Exception:
            return
        if seed % 4 == 0 and lived.leaked():
            return
    raise AssertionError(f"nobody noticed that {fault.__name__.replace('_', ' ')}")
