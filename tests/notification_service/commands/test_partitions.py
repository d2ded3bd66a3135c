"""`resequencer partitions pause`: which partitions its orders are for."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from notification_service.command_line import main
from notification_service.commands import orders as command
from notification_service.supervision.exit_code import ExitCode
from resequencer.order import Order
from resequencer.record import Partition

KNOWN = [Partition("T", 0), Partition("T", 1), Partition("T-1", 0), Partition("U", 0)]


class Book:
    """Takes orders; none of them has an outcome."""

    def __init__(self) -> None:
        self.given: list[tuple[Partition, Order]] = []

    def append(self, partition: Partition, order: Order) -> int:
        self.given.append((partition, order))
        return len(self.given)

    def outcomes(self, partitions: Collection[Partition], since: int) -> Any:
        return ()

    def close(self) -> None:
        pass


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    made = Book()
    monkeypatch.setattr(command, "make_order_book", lambda _: made)
    monkeypatch.setattr(command, "known_partitions", lambda *_: (KNOWN, ()))
    return made


def pause(directory: Path, place: str) -> int:
    path = directory / "service.conf"
    path.write_text(f"""
        include "{Path("conf/application.conf").absolute()}"
        payment-status-notification.run-directory = "{directory}"
    """)
    return main(["partitions", "pause", place, "--because", "repair", "--wait", "0", "--config", str(path)])


@pytest.mark.parametrize(
    ("place", "partitions"), [("T", ["T-0", "T-1"]), ("T-1", ["T-1"]), ("T-0", ["T-0"]), ("T-1-0", ["T-1-0"])]
)
def test_a_topic_stands_for_each_partition_that_it_has(book: Book, tmp_path: Path, place: str, partitions: list[str]) -> None:
    assert pause(tmp_path, place) == ExitCode.OUT_OF_REACH
    assert [str(partition) for partition, _ in book.given] == partitions
    assert len({order.id for _, order in book.given}) == len(partitions)


def test_what_is_no_partition_is_refused(book: Book, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pause(tmp_path, "V") == ExitCode.FAILED
    assert "there is no partition V: known are T-0, T-1, T-1-0, U-0" in capsys.readouterr().err
    assert book.given == []
