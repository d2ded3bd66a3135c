"""The console's index of groups follows the heads of a store."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from harness.service_under_test import FakeClock
from harness.steady import steady

from notification_service.aggregation import files, kafka_view
from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_view import CopiedView, number_of
from notification_service.aggregation.payments.head import GroupState, Head, Message, encode_head
from notification_service.aggregation.view import FileView
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.console.groups import GroupFilter, GroupIndex


class HeadsAlone(FileView):
    """Nothing is asked for by key: a store has millions of groups."""

    def find(self, key: str) -> Stored | None:
        raise AssertionError(key)


class Changing(FileView):
    """Names what has changed, and counts how often all heads are read."""

    changed: tuple[str, ...] | None = None
    walks = 0

    def take_changed(self) -> tuple[str, ...] | None:  # type: ignore[override]
        return self.changed

    def heads(self) -> Iterator[tuple[str, bytes]]:
        self.walks += 1
        return super().heads()


def head_of(number: int) -> Stored:
    message = Message(f"MSG-{number}", "pain.001")
    head = Head(message=message, who="party", first_at=number, last_at=number, state=GroupState.OPEN)
    return Stored(encode_head(head), number)


def test_groups_that_are_gone_leave_the_index_as_the_heads_stream_by(tmp_path: Path) -> None:
    values, index = ValuesFile(tmp_path / "values.db", is_copy=True), GroupIndex(tmp_path / "index.db")
    view = HeadsAlone(values)
    kept = {f"key-{number:04}": head_of(number) for number in range(2_500)}
    with values.writing() as writing:
        writing.put({Slot(key): head for key, head in kept.items()})
    assert index.refresh(view).groups == 2_500
    gone = ["key-0000", "key-0999", "key-1000", "key-1500", "key-2499"]
    with values.writing() as writing:
        writing.put({Slot(key): None for key in gone} | {Slot("new"): head_of(3_000)})
    assert index.refresh(view).groups == 2_496
    assert set(index.find(GroupFilter(), 5_000).keys) == {*kept, "new"} - {*gone}
    index.close()
    values.close()


def test_heads_of_several_partitions_come_in_the_order_of_their_keys(tmp_path: Path) -> None:
    for partition in range(2):
        values = ValuesFile(tmp_path / f"partition-{partition}.db", is_copy=True)
        with values.writing() as writing:
            writing.put({Slot(f"key-{number}"): head_of(number) for number in range(partition, 6, 2)})
        values.close()
    view = CopiedView(tmp_path)
    assert [key for key, _ in view.heads()] == [f"key-{number}" for number in range(6)]
    view.close()


def test_of_the_keys_that_changed_alone_the_heads_are_read_once_all_are_known(tmp_path: Path) -> None:
    values, index = ValuesFile(tmp_path / "values.db", is_copy=True), GroupIndex(tmp_path / "index.db")
    view = Changing(values)
    with values.writing() as writing:
        writing.put({Slot(f"key-{number}"): head_of(number) for number in range(4)})
    view.changed = ()
    assert index.refresh(view).groups == 4, "the first time all are read, whatever has changed"
    with values.writing() as writing:
        writing.put({Slot("key-0"): None, Slot("key-1"): head_of(7), Slot("new"): head_of(8)})
    view.changed = ("key-0", "key-1", "new", "never-seen")
    assert index.refresh(view).groups == 4
    assert index.find(GroupFilter(), 10).keys == ("key-2", "key-3", "key-1", "new")
    assert view.walks == 1
    view.changed = None
    assert index.refresh(view).groups == 4
    assert view.walks == 2
    index.close()
    values.close()


def test_a_file_names_the_keys_that_it_wrote_since_it_was_asked_unless_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ValuesFile(tmp_path / "values.db", is_copy=True)
    assert values.take_changed() is None, "what was there before is unknown"
    with values.writing() as writing:
        writing.put({Slot("a"): head_of(1), Slot("a", "member"): head_of(2), Slot("b"): None})
    assert values.take_changed() == {"a", "b"}
    assert values.take_changed() == set()
    monkeypatch.setattr(files, "_MAX_CHANGED", 1)
    with values.writing() as writing:
        writing.put({Slot("a"): None, Slot("b"): None})
    assert values.take_changed() is None
    values.clear()
    assert values.take_changed() is None
    values.close()


class Portions:
    """Stands for what restores from topics: it writes what the test has set for a partition."""

    def __init__(self, *_: object) -> None:
        self.changes: dict[int, dict[Slot, Stored | None]] = {}

    def restore(self, number: int, file: ValuesFile) -> None:
        with file.writing() as writing:
            writing.put(self.changes.pop(number, {}))

    def close(self) -> None:
        pass


def test_a_view_of_topics_names_what_it_read_of_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restoring, index = Portions(), GroupIndex(tmp_path / "index.db")
    monkeypatch.setattr(kafka_view, "Restoring", lambda *_: restoring)
    view = kafka_view.TopicView(cast(KafkaSettings, None), tmp_path, 2, steady(FakeClock()))
    keys = [f"key-{number}" for number in range(6)]
    for key in keys:
        restoring.changes.setdefault(number_of(key, 2), {})[Slot(key)] = head_of(int(key[-1]))
    view.refresh()
    assert index.refresh(view).groups == 6, "before the first look anything may have changed"
    restoring.changes = {number_of(keys[0], 2): {Slot(keys[0]): None}}
    restoring.changes.setdefault(number_of(keys[1], 2), {})[Slot(keys[1], "member")] = head_of(9)
    view.refresh()
    assert view.take_changed() == set(keys[:2])
    restoring.changes = {number_of(keys[2], 2): {Slot(keys[2]): None}}
    view.refresh()
    assert index.refresh(view).groups == 5, "what another has taken is not seen again"
    view.close()
    index.close()
