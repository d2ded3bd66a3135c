"""The service as the Containerfile installs it: from a wheel, in an empty environment, without the checkout."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.processes.wheels import (
    build_wheel,
    contents,
    copy_project,
    description,
    let_in,
    packages_of,
    project_files,
    runtime_files,
    the_wheel_in,
)

pytestmark = pytest.mark.slow

LEFT_BEHIND = (
    ".git/config",
    ".venv/bin/python",
    "build/lib/domain/stale.py",
    "dist/resequencer-0.0.1-py3-none-any.whl",
    "domain/__pycache__/stale.cpython-311.pyc",
    "resequencer.egg-info/PKG-INFO",
    "resequencer/strategies/__pycache__/stale.cpython-311.pyc",
    "run/application/in/partition-0.jsonl",
)
"""By-products that may be in a checkout."""

PROGRAM = """
import json, sys
from daemon.command_line import main
code = main(sys.argv[1:])
files = sorted({each.__file__ for each in list(sys.modules.values()) if getattr(each, "__file__", None)})
print(json.dumps(files), file=sys.stderr)
sys.exit(code)
"""


class Context(NamedTuple):
    """A directory and its first contents, because building leaves files in it."""

    directory: Path
    files: frozenset[str]


class Installed(NamedTuple):
    """An environment, the wheel that is installed in it, and an empty working directory."""

    environment: Path
    wheel: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment. Nothing tells it where the checkout is."""
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.environment / "bin" / program), *arguments]
        return subprocess.run(command, cwd=self.elsewhere, env=surroundings, check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """The build context of a container, made from a checkout with by-products."""
    checkout, directory = (tmp_path_factory.mktemp(name) for name in ("checkout", "context"))
    copy_project(checkout)
    for name in LEFT_BEHIND:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("stale = True\n")
    files = let_in(checkout, Path(".dockerignore"))
    for each in files:
        (directory / each).parent.mkdir(parents=True, exist_ok=True)
        (checkout / each).rename(directory / each)
    return Context(directory, frozenset(map(str, files)))


@pytest.fixture(scope="module")
def installed(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install by the commands of the Containerfile's first stage, in directories of the test."""
    image, elsewhere = (tmp_path_factory.mktemp(name) for name in ("image", "elsewhere"))
    text = Path("deploy/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    stage = re.split(r"^FROM .*$", text, flags=re.MULTILINE)[1]
    assert re.findall(r"^(?:WORKDIR|COPY) .*$", stage, flags=re.MULTILINE) == ["WORKDIR /source", "COPY . ."]
    for command in re.findall(r"^RUN (.*)$", stage, flags=re.MULTILINE):
        here = command.replace("/opt/", f"{image}/opt/").replace("/wheels", f"{image}/wheels")
        here = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", here)
        subprocess.run(here, shell=True, cwd=context.directory, check=True, capture_output=True)
    return Installed(image / "opt/resequencer/.venv", the_wheel_in(image / "wheels"), elsewhere)


def test_a_container_is_built_of_the_packages_and_what_describes_them(context: Context) -> None:
    assert context.files == runtime_files() | {"LICENSE", "README.md", "pyproject.toml", "setup.cfg"}


def test_a_wheel_holds_the_modules_and_the_data_of_the_packages_and_nothing_else(tmp_path: Path) -> None:
    copy_project(tmp_path / "source")
    wheel = build_wheel(tmp_path / "source", tmp_path)
    assert contents(wheel).keys() == runtime_files()
    assert all(Path(name).read_bytes() == content for name, content in contents(wheel).items())
    assert description(wheel) == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    assert {name.partition("/")[0] for name in contents(wheel)} == packages_of(project_files())


def test_the_containers_wheel_is_the_same(installed: Installed) -> None:
    """By-products in the checkout make no difference."""
    assert contents(installed.wheel) == {name: Path(name).read_bytes() for name in runtime_files()}


def test_an_installed_service_finds_its_reference_configuration_and_settings(installed: Installed) -> None:
    report = json.loads(installed.run("resequencer", "check", "--json", "--connect").stdout)
    (site,) = (installed.environment / "lib").glob("python*/site-packages")
    assert report["file"] == str(site / "conf" / "application.conf")
    assert report["keys"]["payment-status-notification.settings"]["value"] == str(site / "conf" / "notification-settings.csv")


def test_the_demo_runs_from_an_empty_directory_and_imports_nothing_of_the_checkout(installed: Installed) -> None:
    ended = installed.run("python", "-c", PROGRAM, "demo", "--units", "300", "--seed", "1")
    assert "every promise was held" in ended.stdout
    ours, base = str(installed.environment.resolve()), str(Path(sys.base_prefix).resolve())
    files = [Path(each).resolve() for each in json.loads(ended.stderr.splitlines()[-1])]
    assert len([each for each in files if each.is_relative_to(ours)]) > 100
    assert [each for each in files if not each.is_relative_to(ours) and not each.is_relative_to(base)] == []
    assert not any(each.is_relative_to(Path.cwd()) for each in files)


def test_the_script_that_installing_makes_runs_the_demo(installed: Installed) -> None:
    assert "every promise was held" in installed.run("resequencer", "demo", "--units", "100", "--seed", "2").stdout
