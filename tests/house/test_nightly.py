"""What only `make nightly` runs is of a family, whose promise `make test` shows, too."""

import re

import pytest
from harness.nightly import FAMILIES, as_table
from harness.packages import ROOT

MODULES = {file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py")}


def test_contributing_has_the_table_of_families() -> None:
    assert as_table() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_tests_for_the_night_and_others_that_show_its_promise(name: str) -> None:
    assert any(re.search(rf'(?:nightly|at_night)\(\s*"{name}"', text) for text in MODULES.values())
    for path in FAMILIES[name].shown_by:
        assert re.search(r"^ *(?:def test_|class Test)", MODULES[ROOT / path], re.MULTILINE), path
