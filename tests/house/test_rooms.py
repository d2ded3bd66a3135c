"""The rules of setup.cfg name every room, and every module that says that it is pure."""

import ast
import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from harness.rooms import CODE_ROOMS, ROOT, SERVICE_ROOMS

FREE = {
    "spark": {"pipeline"},
    "hocon": {"daemon"},
    "thespian": set(),
    "sql": set(),
    "web": set(),
    "clients": set(),
    "no-servers": {"servers"},
}
"""The rooms that a rule about all rooms does not bind. A part of a room is excepted by name in `ignore_imports`."""


@pytest.fixture(scope="module")
def setup() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def names(setup: ConfigParser, contract: str, field: str) -> list[str]:
    return setup[f"importlinter:contract:{contract}"][field].split()


def test_every_room_is_checked_for_types_and_imports(setup):
    assert set(setup["importlinter"]["root_packages"].split()) == set(CODE_ROOMS)
    assert set(setup["mypy"]["packages"].split(", ")) == set(CODE_ROOMS)


def test_every_room_has_its_layer(setup):
    assert set(names(setup, "layers", "layers")) - {"|"} == set(SERVICE_ROOMS)


@pytest.mark.parametrize("contract", FREE)
def test_a_rule_about_all_rooms_names_all(setup, contract):
    assert set(names(setup, contract, "source_modules")) == set(CODE_ROOMS) - FREE[contract]


def test_a_rule_that_is_no_rule_about_all_rooms_is_one_of_these(setup):
    contracts = {each.rpartition(":")[2] for each in setup.sections() if each.startswith("importlinter:contract:")}
    assert contracts - FREE.keys() == {"layers", "pure", "servers"}


def test_the_servers_know_no_room(setup):
    assert names(setup, "servers", "source_modules") == ["servers"]
    assert set(names(setup, "servers", "forbidden_modules")) == set(SERVICE_ROOMS)


def test_a_module_that_says_that_it_is_pure_is_held_to_it(setup):
    pure = names(setup, "pure", "source_modules")
    says_so = [name for name, text in modules().items() if re.search(r"\bPure\b", ast.get_docstring(ast.parse(text)) or "")]
    assert len(says_so) > 10
    assert [each for each in says_so if not any(f"{each}.".startswith(f"{name}.") for name in pure)] == []


def modules() -> dict[str, str]:
    """Return the text of each module of the service, by its dotted name."""
    files = (file for room in SERVICE_ROOMS for file in (ROOT / room).rglob("*.py"))
    return {".".join(Path(each).relative_to(ROOT).with_suffix("").parts): each.read_text(encoding="utf-8") for each in files}
