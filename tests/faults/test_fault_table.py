"""The table at the end of a run with campaigns."""

from types import SimpleNamespace

from harness.fault_table import PROPERTY, Row, render, rows_of

ROW = Row("kill -9 of a worker", 50, "redis", 1000, 800, 1, 2, 3, 4, 5, 6.25, 7)


def test_a_row_is_taken_from_the_call_alone_and_survives_the_way_between_processes() -> None:
    phases = [SimpleNamespace(when=when, user_properties=[("other", 1), (PROPERTY, list(ROW))]) for when in ("setup", "call")]
    assert rows_of([*phases, object()]) == [ROW]


def test_columns_stand_below_each_other() -> None:
    lines = render([ROW, ROW._replace(fault="full Redis", times=1)])
    assert len({len(each) for each in lines}) == 1
    assert [each.strip() for each in lines[2].split("|")[1:-1]] == [
        "kill -9 of a worker", "50", "redis", "1000", "800", "1", "2", "3", "4", "5", "6.2 s", "7",
    ]  # fmt: skip
