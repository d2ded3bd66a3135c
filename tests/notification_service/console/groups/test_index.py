"""The console's index of groups follows the heads of a store."""

from pathlib import Path

from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_view import CopiedView
from notification_service.aggregation.payments.head import GroupState, Head, Message, encode_head
from notification_service.aggregation.view import FileView
from notification_service.console.groups import GroupFilter, GroupIndex


class HeadsAlone(FileView):
    """Nothing is asked for by key: a store has millions of groups."""

    def find(self, key: str) -> Stored | None:
        raise AssertionError(key)


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
