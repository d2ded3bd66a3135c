"""The table of the architecture names every package, and every place and folder below that a reader looks for."""

import re

import pytest
from harness.packages import CODE, PLACES, ROOT, SERVICE

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z_/]+)/` \|(.*)", PAGE, re.MULTILINE))
FOLDERS = ("connectors", "delivery", "jobs", "simulator")
"""Places of several folders, whose rows name them."""


def test_the_table_has_each_package_and_each_place() -> None:
    assert ROWS.keys() == {*CODE, *PLACES} - {SERVICE}


@pytest.mark.parametrize("place", FOLDERS)
def test_a_place_of_several_folders_names_them(place: str) -> None:
    folders = {each.parent.name for each in (ROOT / SERVICE / place).glob("*/__init__.py")}
    assert {each for each in folders if f"`{each}/`" not in ROWS[place]} == set()


def test_the_arrows_of_imports_have_the_layers_of_the_import_rules() -> None:
    rules = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    for arrow, contract in zip(re.findall(r"^[a-z_]+(?: [|→] [a-z_]+)+$", PAGE, re.MULTILINE), ("layers", "places"), strict=True):
        layers = rules.partition(f"[importlinter:contract:{contract}]")[2].partition("\nlayers =\n")[2]
        lines = [each.strip() for each in re.split(r"\n(?=\S|\n)", layers)[0].splitlines()]
        assert arrow.split(" → ") == lines[-len(arrow.split(" → ")) :]
