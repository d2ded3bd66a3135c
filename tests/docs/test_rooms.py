"""The tables of rooms name every package and every folder below it that a reader looks for."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {each.parent.name for each in ROOT.glob("*/__init__.py")} - {"conf", "tests"}
OUTSIDE = {"conf", "tests", "benchmarks", "docs"}
"""Folders in the table of CONTRIBUTING.md that are no packages."""


def rooms(page: str, row: str) -> dict[str, str]:
    """Return the rows of a table of rooms by their rooms."""
    return dict(re.findall(row, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


CONTRIBUTING = rooms("CONTRIBUTING.md", r"^\| \[(\w+)/\]\(\w+\)(.*)")
ARCHITECTURE = rooms("docs/architecture.md", r"^\| `(\w+)/` \|(.*)")


def test_the_table_for_contributors_has_each_package_once_and_nothing_else() -> None:
    assert CONTRIBUTING.keys() - OUTSIDE == PACKAGES


def test_the_table_of_the_architecture_has_each_package() -> None:
    assert ARCHITECTURE.keys() == PACKAGES


@pytest.mark.parametrize("table", [CONTRIBUTING, ARCHITECTURE], ids=["contributors", "architecture"])
@pytest.mark.parametrize("room", ["connectors", "daemon", "delivery", "pipeline"])
def test_a_room_of_several_folders_names_them(room: str, table: dict[str, str]) -> None:
    folders = {each.parent.name for each in (ROOT / room).glob("*/__init__.py")}
    assert {each for each in folders if f"`{each}/`" not in table[room]} == set()


def test_the_arrow_of_imports_has_the_layers_of_the_import_rules() -> None:
    arrow = re.search(r"^daemon → .*$", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    rules = (ROOT / "setup.cfg").read_text(encoding="utf-8").partition("layers =\n")[2].partition("\n\n")[0]
    assert arrow is not None
    assert arrow[0].split(" → ") == [each.strip() for each in rules.splitlines()]
