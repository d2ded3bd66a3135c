"""The page of recipes: it has one for everything that can be added, and names files that there are."""

import re

import pytest
from harness.recipes import PAGE, ROOT, Recipe

NAMES = (
    "a strategy",
    "a format",
    "a target type",
    "a handler",
    "a data handler",
    "a lookup",
    "a store of your own",
    "a storage",
    "a transport",
    "a command",
    "a metric",
    "a configuration key",
    "a page of the console",
    "a migration of the ledger",
    "a server",
)


def test_there_is_a_recipe_for_everything_and_contributing_links_to_each():
    assert tuple(re.findall(r"^## Add (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == NAMES
    links = re.findall(r"^\[(.*)\]\(docs/extending\.md#add-(.*)\)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert links == [(name, name.replace(" ", "-")) for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_each_file_that_a_recipe_names_exists(name):
    recipe = Recipe(name)
    assert [path for path in sorted(recipe.paths) if not (ROOT / path).exists()] == []
    assert recipe.paths


@pytest.mark.parametrize("name", NAMES[: NAMES.index("a storage")])
def test_what_a_user_adds_lies_outside_of_the_project_and_needs_no_edit_of_it(name):
    recipe = Recipe(name)
    assert "```diff" not in recipe.text
    assert {path.partition("/")[0] for path in recipe.files} <= {"payments", "shop", "tests", "conf", "desks.csv"}
