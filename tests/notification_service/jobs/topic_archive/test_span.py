"""Which directories of an archive are valid, by their names."""

import random

import pytest

from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.topic_archive.span import Span, find_span, visible


def spans(*names: str) -> list[Span]:
    found = [find_span(f"batch={name}") for name in names]
    return [span for span in found if span is not None]


def test_a_directory_that_holds_several_batches_stands_for_each_of_them() -> None:
    assert visible(spans("1-1", "2-2", "3-3", "1-2", "4-4")) == spans("1-2", "3-3", "4-4")
    assert visible(spans("1-10", "11-11", "1-2", "3-10", "5-5")) == spans("1-10", "11-11")


def test_two_compactions_at_once_that_overlap_hide_nothing_and_show_nothing_twice() -> None:
    both = spans(*(f"{number}-{number}" for number in range(1, 21)), "1-10", "5-15")
    assert visible(both) == spans("1-10", *(f"{number}-{number}" for number in range(11, 21)))


def test_what_is_left_out_may_go_one_by_one_and_nothing_changes() -> None:
    chance = random.Random(7)
    for _ in range(200):
        single = [Span(number, number) for number in range(1, 13)]
        wide = [Span(first, chance.randint(first, 12)) for first in chance.sample(range(1, 13), 6)]
        there = {*single, *wide}
        counting = visible(there)
        assert [number for span in counting for number in range(span.first, span.last + 1)] == list(range(1, 13))
        gone = [span for span in there if span not in counting]
        chance.shuffle(gone)
        for span in gone:
            there.remove(span)
            assert visible(there) == counting


def test_a_batch_that_is_missing_is_named() -> None:
    with pytest.raises(ArchiveRefused, match="batch 3 is missing, but batch 4 is there: restore it from a copy"):
        visible(spans("1-2", "4-4"))
    with pytest.raises(ArchiveRefused, match="batch 1 is missing"):
        visible(spans("2-2"))


@pytest.mark.parametrize("name", ["batch=0-1", "batch=2-1", "batch=1", "batch=1-1.removed", "work", "batch=01-1", "batch=a-b"])
def test_other_directories_are_none(name: str) -> None:
    assert find_span(name) is None


def test_an_archive_in_which_nothing_lies_is_empty() -> None:
    assert visible([]) == []
