"""Views that pages share: a page that waits for the storage keeps no other page waiting."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest
from harness.waiting import DEADLINE_SECONDS

from notification_service.console.sources import MAX_VIEWS, SharedViews
from resequencer.record import Partition
from resequencer.storage_port import Header, StorageUnavailable
from storage.view_port import UnitView, WaitingChanges

P0 = Partition("T", 0)


class View:
    """Answers once `may_answer` is set."""

    def __init__(self, may_answer: Event) -> None:
        self.may_answer = may_answer
        self.is_closed = False

    def find_header(self, partition: Partition) -> Header | None:
        assert self.may_answer.wait(DEADLINE_SECONDS), partition
        return None

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        raise AssertionError((partition, unit))

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        raise AssertionError((partition, marker))

    def close(self) -> None:
        self.is_closed = True


class Opened:
    """The views that were opened. Those after the first `slow` ones answer at once."""

    def __init__(self, slow: int = 0) -> None:
        self.views: list[View] = []
        self.may_answer = Event()
        self.slow = slow

    def open(self) -> View:
        at_once = Event()
        at_once.set()
        self.views.append(View(self.may_answer if len(self.views) < self.slow else at_once))
        return self.views[-1]


@contextmanager
def reading(views: SharedViews, opened: Opened, times: int) -> Iterator[None]:
    """Pages that wait for the storage, each in its thread."""

    def read(asks: Event) -> None:
        with views.lent() as view:
            asks.set()
            view.find_header(P0)

    begun = [Event() for _ in range(times)]
    threads = [Thread(target=read, args=(each,)) for each in begun]
    for thread in threads:
        thread.start()
    try:
        assert all(each.wait(DEADLINE_SECONDS) for each in begun)
        yield
    finally:
        opened.may_answer.set()
        for thread in threads:
            thread.join()


def test_a_page_reads_while_another_one_waits_for_the_storage() -> None:
    opened = Opened(slow=1)
    views = SharedViews(opened.open)
    with reading(views, opened, 1), views.lent() as view:
        assert view.find_header(P0) is None
    assert len(opened.views) == 2


def test_pages_one_after_the_other_use_one_view() -> None:
    opened = Opened()
    views = SharedViews(opened.open)
    for _ in range(3):
        with views.lent() as view:
            assert view is opened.views[0]
    assert len(opened.views) == 1


def test_a_page_for_which_no_view_is_free_is_told_so_and_the_next_one_reads_again() -> None:
    opened = Opened(slow=MAX_VIEWS)
    views = SharedViews(opened.open, wait_seconds=0.01)
    with reading(views, opened, MAX_VIEWS), views.lent() as view:
        for look in (view.find_header, lambda each: view.find_unit(each, "a"), lambda each: view.find_waiting(each, None)):
            with pytest.raises(StorageUnavailable, match="4 other pages wait"):
                look(P0)
    with ExitStack() as stack:
        lent = [stack.enter_context(views.lent()) for _ in range(MAX_VIEWS)]
        assert sorted(map(id, lent)) == sorted(map(id, opened.views))


def test_a_view_that_cannot_be_opened_takes_no_place() -> None:
    opened = Opened()

    def fail() -> View:
        if len(failures) < MAX_VIEWS:
            failures.append(1)
            raise StorageUnavailable("away")
        return opened.open()

    failures: list[int] = []
    views = SharedViews(fail, wait_seconds=0.01)
    for _ in range(MAX_VIEWS):
        with pytest.raises(StorageUnavailable, match="away"), views.lent():
            pass
    with views.lent() as view:
        assert view is opened.views[0]


def test_views_are_closed_also_those_in_use() -> None:
    opened = Opened()
    views = SharedViews(opened.open)
    with views.lent() as used:
        with views.lent():
            pass
        views.close()
        assert [each.is_closed for each in opened.views] == [False, True]
        assert used is opened.views[0]
    assert all(each.is_closed for each in opened.views)
