"""The copy of the waiting index: what it takes over, its pages, and how it stays fresh."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest
from harness.console_stage import make_sources
from harness.service_under_test import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from notification_service.console.sources import Spent
from notification_service.console.waiting import copy as copy_module
from notification_service.console.waiting import units as query
from notification_service.console.waiting.copy import NAME, CopyUnusable, WaitingCopy
from notification_service.console.waiting.units import (
    IDLE,
    LOOKED_AT,
    BadPlace,
    Sort,
    WaitingFilter,
    WaitingPage,
    WaitingUnit,
    WaitingUnits,
    read_page,
)
from resequencer.record import Partition
from resequencer.storage_port import Header, StorageUnavailable, WaitKind, Waits
from storage.view_port import UnitView, WaitingChanges, WaitingPortion

P0, P1 = Partition("T", 0), Partition("T", 1)


def waits(since: int, waits_for: str = "sequence:1", kind: WaitKind = WaitKind.DEADLINE, stashed: int = 1) -> Waits:
    return Waits(since + 21_000, kind, since, waits_for, "SEQUENCE", stashed, 100 * stashed)


def whole(*units: tuple[str, Waits | None], marker: str = "m") -> WaitingChanges:
    return WaitingChanges(marker, True, iter([list(units)]))


def changes(*units: tuple[str, Waits | None], marker: str = "n") -> WaitingChanges:
    return WaitingChanges(marker, False, iter([list(units)]))


def page_of(copy: WaitingCopy, asked: WaitingFilter | None = None, after: str | None = None, limit: int = 50) -> WaitingPage:
    with copy.reading() as connection:
        assert connection is not None
        return read_page(connection, asked or WaitingFilter(), after, limit)


def all_of(copy: WaitingCopy, asked: WaitingFilter | None = None, limit: int = 3) -> Iterator[WaitingUnit]:
    """Page through all that the filter lets through."""
    page = page_of(copy, asked, limit=limit)
    yield from page.units
    while page.after is not None:
        page = page_of(copy, asked, page.after, limit)
        yield from page.units


def back_through(copy: WaitingCopy, asked: WaitingFilter, limit: int = 2) -> Iterator[WaitingUnit]:
    """Page to the end, then back to the beginning; yield what was seen on the way back, in the order of the list."""
    page = page_of(copy, asked, limit=limit)
    assert page.before is None
    while page.after is not None:
        page = page_of(copy, asked, page.after, limit)
    seen = list(page.units)
    while page.before is not None:
        with copy.reading() as connection:
            assert connection is not None
            page = read_page(connection, asked, None, limit, page.before)
        seen = [*(each for each in page.units if each not in seen), *seen]
    yield from seen


@pytest.fixture
def copy(tmp_path: Path) -> WaitingCopy:
    made = WaitingCopy(tmp_path)
    made.markers()
    return made


def test_a_whole_replaces_the_rows_of_its_partition_only(copy: WaitingCopy) -> None:
    copy.take("T-0", whole(("a", waits(1)), ("b", waits(2, stashed=3))), 10)
    copy.take("T-1", whole(("a", waits(3))), 11)
    copy.take("T-0", whole(("b", waits(5, "sequence:2")), marker="n"), 12)
    assert [(each.unit, each.partition, each.waits_for) for each in page_of(copy).units] == [
        ("a", "T-1", "sequence:1"),
        ("b", "T-0", "sequence:2"),
    ]
    assert copy.markers() == {"T-0": ("n", 12), "T-1": ("m", 11)}


def test_changes_add_move_and_remove_and_leave_the_rest(copy: WaitingCopy) -> None:
    copy.take("T-0", whole(("a", waits(1)), ("b", waits(2)), ("c", waits(3))), 10)
    copy.take("T-0", changes(("a", None), ("b", waits(9)), ("d", waits(4)), ("unknown", None)), 11)
    assert [(each.unit, each.since) for each in page_of(copy).units] == [("c", 3), ("d", 4), ("b", 9)]


def test_the_last_entry_of_a_unit_counts(copy: WaitingCopy) -> None:
    copy.take("T-0", WaitingChanges("m", True, iter([[("a", waits(1)), ("a", None)], [("b", None)], [("b", waits(2))]])), 10)
    assert [each.unit for each in page_of(copy).units] == ["b"]


def test_a_listing_that_breaks_off_keeps_the_marker_of_before(copy: WaitingCopy) -> None:
    def broken() -> Iterator[WaitingPortion]:
        yield [("b", waits(2))]
        raise StorageUnavailable

    copy.take("T-0", whole(("a", waits(1))), 10)
    with pytest.raises(StorageUnavailable):
        copy.take("T-0", WaitingChanges("n", True, broken()), 11)
    assert copy.markers() == {"T-0": ("m", 10)}
    assert [each.unit for each in page_of(copy).units] == ["a", "b"]


UNITS = st.sampled_from(["a", "ab", "b", "ü", "<i>"])
WAITS = st.none() | st.builds(
    waits, st.integers(0, 5), st.sampled_from(["sequence:1", "sequence:12", "bank"]), st.sampled_from(WaitKind), st.integers(1, 3)
)
LISTINGS = st.lists(st.tuples(st.sampled_from(["T-0", "T-1"]), st.booleans(), st.lists(st.tuples(UNITS, WAITS))), max_size=6)
FILTERS = st.builds(
    WaitingFilter,
    st.sampled_from(["", "sequence:", "sequence:1", "bank", "none"]),
    st.sampled_from(["", "deadline", "retry"]),
    st.sampled_from(["", "T-0", "T-9"]),
    st.sampled_from(["", "a", "ü", "z"]),
    st.none() | st.integers(0, 6),
    st.sampled_from(Sort),
)


@pytest.mark.slow
@given(LISTINGS, FILTERS, st.sampled_from([0, 20_000]), st.sampled_from([0, 500]))
def test_pages_counts_and_totals_are_those_of_a_simple_model(
    tmp_path_factory: pytest.TempPathFactory,
    listings: list[tuple[str, bool, list[tuple[str, Waits | None]]]],
    asked: WaitingFilter,
    few: int,
    max_classes: int,
) -> None:
    """Whichever way the units are searched: `few` and `max_classes` decide which."""
    with patch.multiple(query, _FEW=few, _MAX_CLASSES=max_classes):
        compare_with_a_model(tmp_path_factory, listings, asked)


def compare_with_a_model(
    tmp_path_factory: pytest.TempPathFactory,
    listings: list[tuple[str, bool, list[tuple[str, Waits | None]]]],
    asked: WaitingFilter,
) -> None:
    copy = WaitingCopy(tmp_path_factory.mktemp("copy"))
    copy.markers()
    model: dict[tuple[str, str], Waits] = {}
    for partition, is_whole, units in listings:
        copy.take(partition, WaitingChanges("m", is_whole, iter([units])), 1)
        if is_whole:
            model = {key: value for key, value in model.items() if key[1] != partition}
        for unit, waited in units:
            model.pop((unit, partition), None)
            if waited is not None:
                model[unit, partition] = waited
    wanted = {key for key, value in model.items() if _lets_through(asked, key, value)}
    listed = list(all_of(copy, asked))
    assert sorted((each.unit, each.partition) for each in listed) == sorted(wanted)
    if asked.is_by_unit:
        assert [each.unit for each in listed] == sorted(each.unit for each in listed)
    else:
        assert [each.since for each in listed] == sorted((each.since for each in listed), reverse=asked.sort is Sort.NEWEST)
    assert list(back_through(copy, asked)) == listed
    page = page_of(copy, asked)
    assert (page.matching, page.total.units) == (len(wanted), len(model))
    assert page.total.envelopes == sum(each.stashed for each in model.values())
    assert page.total.bytes == sum(each.units and each.bytes for each in page.classes)


def _lets_through(asked: WaitingFilter, key: tuple[str, str], waited: Waits) -> bool:
    return (
        waited.waits_for.startswith(asked.waits_for)
        and asked.kind in ("", waited.kind)
        and asked.partition in ("", key[1])
        and key[0].startswith(asked.unit)
        and (asked.before is None or waited.since < asked.before)
    )


def test_more_classes_than_are_read_one_by_one_are_filtered(copy: WaitingCopy) -> None:
    copy.take("T-0", whole(*((f"u{at:04}", waits(at, f"sequence:{at}")) for at in range(2_000))), 10)
    listed = list(all_of(copy, WaitingFilter(waits_for="sequence:1"), limit=100))
    assert [each.since for each in listed] == [at for at in range(2_000) if str(at).startswith("1")]


def test_a_place_that_is_none_is_refused(copy: WaitingCopy) -> None:
    for text in ("", "x", "1", "x.1", "1.x", f"{2**70}.1"):
        with pytest.raises(BadPlace):
            page_of(copy, after=text)


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 100, b""])
def test_a_damaged_copy_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    copy = WaitingCopy(tmp_path)
    assert copy.markers() == {}
    copy.take("T-0", whole(("a", waits(1))), 10)
    assert page_of(copy).total.units == 1


def test_a_copy_of_another_version_is_made_anew(copy: WaitingCopy) -> None:
    copy.take("T-0", whole(("a", waits(1))), 10)
    with closing(sqlite3.connect(copy.file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with copy.reading() as connection_or_none:
        assert connection_or_none is None
    assert copy.markers() == {}


def test_a_copy_of_another_storage_is_made_anew_and_not_shown(tmp_path: Path) -> None:
    before = WaitingCopy(tmp_path, "redis here:6379 0 a")
    before.markers()
    before.take("T-0", whole(("a", waits(1))), 10)
    for other in ("redis here:6379 1 a", "redis here:6379 0 b", "embedded /state.db"):
        copy = WaitingCopy(tmp_path, other)
        with copy.reading() as connection:
            assert connection is None
    assert copy.markers() == {}
    assert page_of(copy).units == ()
    assert before.markers() == {}


def test_a_copy_from_before_the_machine_was_started_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = WaitingCopy(tmp_path)
    before.markers()
    before.take("T-0", whole(("a", waits(1))), 10)
    assert WaitingCopy(tmp_path).markers() == {"T-0": ("m", 10)}
    monkeypatch.setattr(copy_module, "_find_boot", lambda: "another start")
    assert WaitingCopy(tmp_path).markers() == {}


def test_a_listing_of_another_storage_that_broke_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[WaitingPortion]:
        yield [("a", waits(1))]
        raise StorageUnavailable

    before = WaitingCopy(tmp_path, "one")
    before.markers()
    with pytest.raises(StorageUnavailable):
        before.take("T-0", WaitingChanges("m", True, broken()), 1)
    after = WaitingCopy(tmp_path, "another")
    assert after.markers() == {}
    assert page_of(after).units == ()


class View:
    """Lists what a test sets; `calls` are the markers that it was asked with."""

    def __init__(self) -> None:
        self.listed: Mapping[str, Waits] = {}
        self.marker = "m0"
        self.error: StorageUnavailable | None = None
        self.calls: list[tuple[str, str | None]] = []

    def find_header(self, partition: Partition) -> Header | None:
        raise AssertionError(partition)

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        raise AssertionError((partition, unit))

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        self.calls.append((str(partition), marker))
        if self.error is not None:
            raise self.error
        return None if marker == self.marker else whole(*self.listed.items(), marker=self.marker)

    def close(self) -> None:
        pass


@pytest.fixture
def view() -> View:
    return View()


def test_a_refresh_reads_only_what_has_changed_and_says_as_of_when(tmp_path: Path, view: View) -> None:
    clock = FakeClock()
    kept = WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0], clock=clock))
    view.listed = {"a": waits(1)}
    kept.refresh()
    first = clock.now()
    clock.advance(5_000)
    kept.refresh()
    assert view.calls == [("T-0", None), ("T-0", "m0")]
    answer = kept.ask(WaitingFilter())
    assert (answer.page.total.units, answer.as_of, answer.problem) == (1, first + 5_000, None)
    assert kept.find_partitions("a") == [P0]
    assert kept.find_partitions("b") == []


def test_while_the_storage_is_unavailable_the_copy_is_shown_with_its_age(tmp_path: Path, view: View) -> None:
    clock = FakeClock()
    kept = WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0, P1], clock=clock))
    view.listed = {"a": waits(1)}
    kept.refresh()
    before = clock.now()
    clock.advance(60_000)
    view.error = StorageUnavailable("redis does not answer")
    kept.refresh()
    answer = kept.ask(WaitingFilter())
    assert [each.unit for each in answer.page.units] == ["a", "a"]
    assert answer.as_of == before
    assert [each.problem for each in answer.partitions] == ["redis does not answer"] * 2


def test_a_copy_of_an_earlier_console_is_shown_as_old_as_it_is(tmp_path: Path, view: View) -> None:
    clock = FakeClock()
    view.listed = {"a": waits(1)}
    WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0], clock=clock)).refresh()
    before = clock.now()
    clock.advance(3_600_000)
    view.error = StorageUnavailable("away")
    again = WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0], clock=clock))
    again.refresh()
    answer = again.ask(WaitingFilter())
    assert (answer.page.total.units, answer.as_of) == (1, before)


def test_what_has_no_part_of_a_partition_yet_has_no_instant(tmp_path: Path, view: View) -> None:
    answers = []

    class Asking(View):
        def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
            answers.append(kept.ask(WaitingFilter()))
            return super().find_waiting(partition, marker)

    asking = Asking()
    kept = WaitingUnits(make_sources(tmp_path, open_view=lambda: asking, partitions=[P0, P1]))
    kept.refresh()
    assert [[each.as_of is None for each in answer.partitions] for answer in answers] == [[True, True], [False, True]]
    assert [answer.as_of for answer in answers] == [None, None]
    assert kept.ask(WaitingFilter()).as_of is not None


def test_a_copy_that_cannot_be_written_is_a_problem_and_no_harm(
    tmp_path: Path, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0]))
    kept.refresh()
    view.listed, view.marker = {"a": waits(1)}, "m1"

    def full(*_: object) -> None:
        raise CopyUnusable(tmp_path / NAME, sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(WaitingCopy, "take", full)
    kept.refresh()
    answer = kept.ask(WaitingFilter())
    assert answer.problem is not None
    assert "disk is full" in answer.problem
    assert answer.page.units == ()
    monkeypatch.undo()
    kept.refresh()
    assert kept.ask(WaitingFilter()).problem is None
    assert kept.ask(WaitingFilter()).page.total.units == 1


def test_the_thread_refreshes_and_ends_with_the_console(tmp_path: Path, view: View) -> None:
    kept = WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0]))
    view.listed = {"a": waits(1)}
    kept.start()
    try:
        assert kept.ask(WaitingFilter()).page.total.units == 1, "the first question waits for the first refresh"
    finally:
        kept.close()


def test_refreshing_takes_a_third_of_a_core_while_people_look_and_a_fiftieth_otherwise() -> None:
    assert LOOKED_AT.pause_after(Spent(0.01, 0.01)) == 1
    assert LOOKED_AT.pause_after(Spent(6.0, 6.0)) == pytest.approx(12)
    assert IDLE.pause_after(Spent(0.01, 0.01)) == 10
    assert IDLE.pause_after(Spent(6.0, 6.0)) == pytest.approx(294)


def test_waiting_for_a_slow_server_or_a_busy_machine_makes_no_old_copy() -> None:
    assert IDLE.pause_after(Spent(2.5, 0.02)) == 10
    assert LOOKED_AT.pause_after(Spent(2.5, 0.02)) == 2.5, "it is asked for half of the time at most"


def test_after_a_whole_listing_the_changes_since_are_read_soon_unless_that_is_the_whole_again(tmp_path: Path, view: View) -> None:
    kept = WaitingUnits(make_sources(tmp_path, open_view=lambda: view, partitions=[P0]))
    soon = []
    for marker in ("m0", "m1", "m1", "m2"):
        view.marker = marker
        soon.append(kept.refresh())
    assert soon == [True, False, False, True]


def test_the_last_bytes_of_the_disk_are_left_to_the_service(copy: WaitingCopy, tmp_path: Path) -> None:
    copy.markers()
    copy.take("T-0", whole(("a", waits(1)), marker="before"), 5)
    greedy = WaitingCopy(tmp_path, min_free_bytes=2**62)
    with pytest.raises(CopyUnusable, match="which the service needs") as refused:
        greedy.take("T-0", whole(("b", waits(1)), marker="after"), 6)
    assert not refused.value.is_damaged
    assert greedy.markers()["T-0"] == ("before", 5)
    assert [each.unit for each in all_of(greedy)] == ["a"]
