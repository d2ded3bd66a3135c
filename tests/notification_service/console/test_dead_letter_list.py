"""Which dead letters a page of the console lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from notification_service.connectors.dead_letters.actions import StoredDeadLetter
from notification_service.console.dead_letters import Filter, list_dead_letters
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.record import Origin, Partition, Record


class Store:
    """Gives the dead letters of one partition after the other, as Kafka does."""

    where = "topic D"

    def letters(self) -> Iterator[StoredDeadLetter]:
        for number, dead_at in (("D-0#0", 10), ("D-0#1", 40), ("D-1#0", 20), ("D-1#1", 30)):
            record = Record(Origin(Partition("T", 0), 7), b"x")
            yield StoredDeadLetter(number, "", (), DeadLetter(record, DeadLetterReason.UNDECODABLE, "no envelope", dead_at))

    def actions(self) -> Iterator[Any]:
        return iter(())


def test_the_newest_of_all_partitions_comes_first() -> None:
    store: Any = Store()
    found = list_dead_letters(store, Filter(), 50, limit=3)
    assert [each.number for each in found.rows] == ["D-0#1", "D-1#1", "D-1#0"]
    assert found.matching == 4
