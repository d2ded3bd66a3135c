"""Many values are found with one question, whatever their names are."""

from collections.abc import Iterator
from contextlib import closing
from itertools import product

import pytest

from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile

NAMES = ("0", '"', "\\", "\\u0061", "a", "[]", "é", "e\u0301", "😀", "'; --", " ", "a b", "A")


@pytest.fixture
def file(tmp_path) -> Iterator[ValuesFile]:
    with closing(ValuesFile(tmp_path / "values.db", is_copy=True)) as file:
        yield file


def put(file: ValuesFile, values: dict[Slot, Stored]) -> None:
    with file.writing() as writing:
        writing.put(values)


def test_exactly_the_values_that_are_there_are_found(file):
    slots = [Slot(*each) for each in product(NAMES, ("", *NAMES))]
    there = {slot: Stored(str(slot).encode(), place if place % 3 else None) for place, slot in enumerate(slots) if place % 2}
    put(file, there)
    assert file.find_all(slots) == there


def test_more_values_are_found_at_once_than_a_query_may_have_parameters(file):
    there = {Slot(f"g{number}", "m"): Stored(b"v") for number in range(40_000)}
    put(file, there)
    assert file.find_all(there) == there


def test_nothing_is_found_of_nothing(file):
    assert file.find_all(()) == {}
