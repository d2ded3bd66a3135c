"""The rules of setup.cfg name every package, every place inside it, and every module that says that it is pure."""

import ast
import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from harness.packages import CODE, PACKAGES, PLACES, ROOT, SERVICE

FREE = {"spark": {"jobs"}, "hocon": {"configuration"}, "thespian": set(), "sql": set(), "web": set(), "clients": set()}
"""The places that a rule about all does not bind. A part of a place is excepted by name in `ignore_imports`."""
TOP = ("api", "command_line")
"""The modules of `notification_service` itself that import."""


@pytest.fixture(scope="module")
def setup() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def names(setup: ConfigParser, contract: str, field: str) -> list[str]:
    return setup[f"importlinter:contract:{contract}"][field].split()


def test_every_package_is_checked_for_types_and_imports(setup):
    assert set(setup["importlinter"]["root_packages"].split()) == set(CODE)
    assert set(setup["mypy"]["packages"].split(", ")) == set(CODE)
    assert set(setup["options.packages.find"]["include"].split()) == {f"{each}*" for each in PACKAGES}


def test_every_package_and_every_place_has_its_layer(setup):
    assert set(names(setup, "layers", "layers")) == set(PACKAGES)
    assert set(names(setup, "places", "layers")) - {"|"} == {*PLACES, *TOP, "__main__"}


@pytest.mark.parametrize("contract", FREE)
def test_a_rule_about_all_names_all(setup, contract):
    places = {f"{SERVICE}.{each}" for each in (*PLACES, *TOP) if each not in FREE[contract]}
    assert set(names(setup, contract, "source_modules")) == {*CODE, *places} - {SERVICE}


def test_a_rule_that_is_no_rule_about_all_is_one_of_these(setup):
    contracts = {each.rpartition(":")[2] for each in setup.sections() if each.startswith("importlinter:contract:")}
    assert contracts - FREE.keys() == {"layers", "places", "pure", "servers", "no-servers"}


def test_the_servers_and_the_service_know_each_other_as_little_as_the_rule_allows(setup):
    assert names(setup, "servers", "source_modules") == names(setup, "no-servers", "forbidden_modules") == ["servers"]
    assert set(names(setup, "servers", "forbidden_modules")) == set(names(setup, "no-servers", "source_modules")) == set(PACKAGES)


def test_a_module_that_says_that_it_is_pure_is_held_to_it(setup):
    pure = names(setup, "pure", "source_modules")
    says_so = [name for name, text in modules().items() if re.search(r"\bPure\b", ast.get_docstring(ast.parse(text)) or "")]
    assert len(says_so) > 10
    assert [each for each in says_so if not any(f"{each}.".startswith(f"{name}.") for name in pure)] == []


def modules() -> dict[str, str]:
    """Return the text of each module of the service, by its dotted name."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {".".join(Path(each).relative_to(ROOT).with_suffix("").parts): each.read_text(encoding="utf-8") for each in files}
