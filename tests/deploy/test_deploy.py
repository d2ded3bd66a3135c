"""Everything that deploy/ names exists: commands, arguments, files, exit codes, and the time for a drain."""

import json
import re
import shlex
from collections import defaultdict
from configparser import ConfigParser
from pathlib import Path, PurePosixPath

import pytest
from harness.processes.wheels import packages_of, project_files

from notification_service.command_line import parse
from notification_service.configuration.configuration import load
from notification_service.supervision.exit_code import ExitCode

SCRIPT = PurePosixPath("/opt/resequencer/.venv/bin/resequencer")


@pytest.fixture(scope="module")
def container() -> dict[str, list[str]]:
    """The instructions of the Containerfile, in order, by name."""
    text = re.sub(r"^#.*\n", "", Path("deploy/Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    instructions = defaultdict(list)
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name:
            instructions[name].append(rest.strip())
    return instructions


@pytest.fixture(scope="module")
def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read("deploy/resequencer.service", encoding="utf-8")
    return parser


@pytest.fixture(scope="module")
def project() -> ConfigParser:
    parser = ConfigParser()
    parser.read("setup.cfg", encoding="utf-8")
    return parser


def is_a_verb_of_ours(command: list[str]) -> bool:
    """Return whether the command line accepts the command as it stands."""
    assert PurePosixPath(command[0]) == SCRIPT
    return bool(parse(command[1:]).command)


def test_the_script_is_one_that_installing_makes(project: ConfigParser) -> None:
    assert f"{SCRIPT.name} = notification_service.command_line:main" in project["options.entry_points"]["console_scripts"]


def test_the_container_runs_and_asks_with_commands_that_there_are(container: dict[str, list[str]]) -> None:
    (entry,), (arguments,), (health,) = (container[name] for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    assert is_a_verb_of_ours(json.loads(entry) + json.loads(arguments))
    assert json.loads(arguments) == ["run"]
    asked = json.loads(health.partition("CMD ")[2])
    assert is_a_verb_of_ours(asked)
    assert asked[1:] == ["status"]


def test_the_container_installs_a_wheel_of_its_context_and_takes_nothing_else_along(container: dict[str, list[str]]) -> None:
    """`test_installed_service.py` takes the same steps."""
    makefile = Path("Makefile").read_text(encoding="utf-8")
    venv, wheel, install = (shlex.split(each) for each in container["RUN"][:3])
    assert venv[1:] == ["-m", "venv", str(SCRIPT.parents[1])]
    assert wheel[1:4] == ["-m", "pip", "wheel"]
    assert wheel[-1] == "."
    assert "--use-pep517" in wheel
    assert "--use-pep517" in makefile
    assert install[:4] == [str(SCRIPT.parent / "python"), "-m", "pip", "install"]
    assert install[-1] == f"$(echo {wheel[wheel.index('--wheel-dir') + 1]}/*.whl)[console]"
    assert container["COPY"] == [". .", f"--from=build {SCRIPT.parents[2]} {SCRIPT.parents[2]}"]


def test_what_the_container_is_built_of_is_let_in_and_nothing_else(project: ConfigParser) -> None:
    lines = Path(".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {line.removeprefix("!") for line in patterns if line.startswith("!")}
    described = {project["metadata"]["license_files"], project["metadata"]["long_description"].removeprefix("file: ")}
    assert let_in == packages_of(project_files()) | described | {"conf", "setup.cfg", "pyproject.toml"}
    assert all(Path(each).exists() for each in let_in)


def test_the_packages_are_found_by_a_rule_and_each_has_its_mark(project: ConfigParser) -> None:
    """A folder without `__init__.py` would not be packaged, though it can be imported in the checkout."""
    assert project["options"]["packages"] == "find:"
    files = project_files()
    packages = packages_of(files)
    folders = {each.parent for each in files if each.suffix == ".py" and each.parts[0] in packages}
    assert sorted(str(each) for each in folders if each / "__init__.py" not in files) == []
    assert {each.parts[0] for each in files if each.name == "py.typed"} - {"servers"} == packages


def test_the_container_runs_as_a_user_without_rights_and_keeps_what_it_writes_in_a_volume(
    container: dict[str, list[str]],
) -> None:
    (user,), (volume,) = container["USER"], container["VOLUME"]
    directory = PurePosixPath(container["WORKDIR"][-1])
    assert int(user) > 0
    assert any(f"useradd --uid {user}" in each for each in container["RUN"])
    assert any(f"--owner={user}" in each and each.endswith(volume) for each in container["RUN"])
    assert PurePosixPath(volume) in (directory / load().notification.run_directory).parents
    assert container["STOPSIGNAL"] == ["SIGTERM"]


def test_the_unit_runs_a_command_that_there_is_with_a_configuration_that_there_is(unit: ConfigParser) -> None:
    command = shlex.split(unit["Service"]["ExecStart"])
    assert is_a_verb_of_ours(command)
    arguments = parse(command[1:])
    assert arguments.command == "run"
    assert arguments.config.exists()
    assert unit["Service"]["WorkingDirectory"] == unit["Service"]["ReadWritePaths"]


def test_the_unit_gives_time_to_drain_and_starts_nothing_again_that_was_refused(unit: ConfigParser) -> None:
    assert int(unit["Service"]["TimeoutStopSec"]) > 30
    assert unit["Service"]["KillMode"] == "mixed"
    refused = {int(code) for code in unit["Service"]["RestartPreventExitStatus"].split()}
    assert refused == {ExitCode.USAGE, ExitCode.CONFIGURATION_REFUSED}
