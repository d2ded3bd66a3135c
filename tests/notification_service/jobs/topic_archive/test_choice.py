"""Which batches a compaction merges."""

from notification_service.jobs.topic_archive.span import Sized, Span, worthwhile


def chosen(*sizes: int, full: int = 100, least: int = 3) -> list[tuple[int, int]]:
    """Return the first and the last batch of each group, for batches of these sizes."""
    sized = [Sized(Span(number, number), size) for number, size in enumerate(sizes, 1)]
    return [(group[0].span.first, group[-1].span.last) for group in worthwhile(sized, full, least)]


def test_a_few_small_ones_are_not_worth_it() -> None:
    assert chosen(1, 1) == []
    assert chosen(1, 1, 1) == [(1, 3)]


def test_two_that_fill_a_directory_are() -> None:
    assert chosen(60, 60, 1) == [(1, 2)]


def test_full_ones_are_left_alone_and_what_is_between_them_is_gathered() -> None:
    assert chosen(100, 1, 1, 1, 250, 2, 2, 2) == [(2, 4), (6, 8)]


def test_a_large_one_is_not_written_anew_for_a_few_small_ones() -> None:
    assert chosen(50, 1, 1, 1) == [(2, 4)]
    assert chosen(20, 10, 10, 1) == [(1, 4)]


def test_a_record_is_written_anew_as_often_as_its_directory_has_doubled() -> None:
    sized: list[Sized] = []
    written = 0
    for number in range(1, 2_001):
        sized.append(Sized(Span(number, number), 1))
        for group in worthwhile(sized, 10_000, 10):
            made = Sized(Span(group[0].span.first, group[-1].span.last), sum(each.bytes for each in group))
            written += made.bytes
            sized = [each for each in sized if each not in group] + [made]
            sized.sort()
    assert written / 2_000 < 12
    assert len(sized) < 30


def test_empty_batches_are_gathered_too() -> None:
    assert chosen(0, 0, 0) == [(1, 3)]
    assert chosen() == []
