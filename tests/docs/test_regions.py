"""docs/regions.md names tests that there are, and every state and key of a region."""

import re
from pathlib import Path

from daemon.configuration.schema import SCHEMA
from guardian.region import RegionState

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "regions.md").read_text(encoding="utf-8")
TESTS = "\n".join(each.read_text(encoding="utf-8") for each in (ROOT / "tests").rglob("test_*.py"))


def test_each_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 10
    assert {each for each in named if f"def {each}(" not in TESTS} == set()


def test_the_page_names_each_state_and_key() -> None:
    keys = [path.rpartition(".")[2] for path in SCHEMA.keys if ".region." in path]
    assert keys
    assert [each for each in keys if f"`{each}`" not in PAGE and f"region.{each}" not in PAGE] == []
    picture = (ROOT / "docs" / "regions.svg").read_text(encoding="utf-8")
    shown = PAGE.lower() + picture
    assert [each.value for each in RegionState if each.value not in shown and each is not RegionState.STOPPED] == []
