"""The table at the end of a run with campaigns."""

from types import SimpleNamespace

from harness.fault_table import DeliveryRow, GroupRow, RegionRow, Row, as_property, render, tables_of

ROW = Row("kill -9 of a worker", 50, "redis", 1000, 800, 1, 2, 3, 4, 5, 6.25, 7)
OF_DELIVERY = DeliveryRow("kill -9 of the receiver", 5, "sqlite", 1000, 990, 10, 0, 0, 0, 0, 7, 8, 9, 10, 1, 7)
OF_GROUPS = GroupRow("kill -9 of an aggregation worker", 5, "kafka", 1000, 90, 80, 80, 0, 0, 0, 0, 0, 1.5, 7)
OF_REGIONS = RegionRow("jms", "kafka, file", 2, 1, 2, 1, 1, 1000, 2000, 0, 0, 0, 0, 0, 1.5, 7)


def test_a_row_is_taken_from_the_call_alone_and_survives_the_way_between_processes() -> None:
    told = [("other", 1), as_property(ROW), as_property(OF_DELIVERY), as_property(OF_GROUPS), as_property(OF_REGIONS)]
    phases = [SimpleNamespace(when=when, user_properties=told) for when in ("setup", "call")]
    assert dict(tables_of([*phases, object()])) == {
        "faults": render([ROW]),
        "faults of delivery": render([OF_DELIVERY]),
        "faults of groups": render([OF_GROUPS]),
        "faults of regions": render([OF_REGIONS]),
    }


def test_columns_stand_below_each_other() -> None:
    lines = render([ROW, ROW._replace(fault="full Redis", times=1)])
    assert len({len(each) for each in lines}) == 1
    assert [each.strip() for each in lines[2].split("|")[1:-1]] == [
        "kill -9 of a worker", "50", "redis", "1000", "800", "1", "2", "3", "4", "5", "6.2 s", "7",
    ]  # fmt: skip
