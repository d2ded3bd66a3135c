"""The service as the Containerfile installs it: from a wheel, in an empty environment, without the checkout."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.processes.operated_service import NOTIFICATION, kafka_overrides
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

from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow

LEFT_BEHIND = (
    ".git/config",
    ".venv/bin/python",
    "build/lib/notification_service/stale.py",
    "dist/resequencer-0.0.1-py3-none-any.whl",
    "notification_service/__pycache__/stale.cpython-311.pyc",
    "resequencer.egg-info/PKG-INFO",
    "resequencer/strategies/__pycache__/stale.cpython-311.pyc",
    "run/application/in/partition-0.jsonl",
)
"""By-products that may be in a checkout."""

GIVEN_UP = (
    *("aggregation", "bridge", "conf", "connectors", "console", "delivery", "domain", "enrichment", "pipeline", "servers"),
    *("simulator", "status"),
)
"""Import names that were ours before, but for `daemon`: other distributions have them, and python-daemon has that one."""

PROGRAM = """
import json, sys
from notification_service.command_line import main
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

    def run(self, program: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, which must end with this code. Nothing tells it where the checkout is."""
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.environment / "bin" / program), *arguments]
        ended = subprocess.run(command, cwd=self.elsewhere, env=surroundings, check=False, capture_output=True, text=True)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended


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


def _built_of() -> set[str]:
    """Of the files of the wheel, but with the link in the place of those that it leads to."""
    return {str(each) for each in project_files() if each.parts[0] in {*packages_of(project_files()), "conf"}}


def test_a_container_is_built_of_the_packages_and_what_describes_them(context: Context) -> None:
    assert context.files == _built_of() | {"LICENSE", "README.md", "pyproject.toml", "setup.cfg"}


def test_a_wheel_holds_the_modules_and_the_data_of_the_packages_and_nothing_else(tmp_path: Path) -> None:
    copy_project(tmp_path / "source")
    wheel = build_wheel(tmp_path / "source", tmp_path)
    assert contents(wheel).keys() == runtime_files()
    assert {each.partition("/")[0] for each in runtime_files()} == {"resequencer", "guardian", "storage", "notification_service"}
    assert all(Path(name).read_bytes() == content for name, content in contents(wheel).items())
    assert description(wheel) == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    assert {name.partition("/")[0] for name in contents(wheel)} == packages_of(project_files())


def test_the_containers_wheel_is_the_same(installed: Installed) -> None:
    """By-products in the checkout make no difference."""
    assert contents(installed.wheel) == {name: Path(name).read_bytes() for name in runtime_files()}


def test_an_installed_service_finds_its_reference_configuration_and_settings(installed: Installed) -> None:
    report = json.loads(installed.run("resequencer", "check", "--json", "--connect").stdout)
    (site,) = (installed.environment / "lib").glob("python*/site-packages")
    assert report["file"] == str(site / "notification_service" / "conf" / "application.conf")
    assert report["keys"]["payment-status-notification.settings"]["value"] == str(
        site / "notification_service" / "conf" / "notification-settings.csv"
    )


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


@pytest.fixture(scope="module")
def among_others(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The environment, with python-daemon and a distribution in it that has all other names that were ours."""
    source, wheels = (tmp_path_factory.mktemp(name) for name in ("others", "wheels"))
    (source / "pyproject.toml").write_text(
        f'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "others"\nversion = "1"\n[tool.setuptools]\npackages = {[*GIVEN_UP]}\n'
    )
    for name in GIVEN_UP:
        (source / name).mkdir()
        (source / name / "__init__.py").write_text('raise ImportError(f"{__name__} is another distribution\'s")\n')
    installed.run("python", "-m", "pip", "install", "--quiet", str(build_wheel(source, wheels)), "python-daemon")
    installed.run("python", "-c", "import status", code=1)
    installed.run("python", "-c", "import daemon.pidfile")
    return installed


def test_the_demos_run_where_others_have_the_names_that_were_given_up(among_others: Installed) -> None:
    assert "every promise was held" in among_others.run("resequencer", "demo", "--units", "100", "--seed", "3").stdout
    delivered = among_others.run("resequencer", "demo", "--delivery", "--units", "60", "--seed", "7").stdout
    assert "every promise was held" in delivered


HIDING = ("guardian", "notification_service", "resequencer", "servers", "status", "storage")
TARGET = """
from notification_service.api import PermanentError


def target(produced):
    if not produced:
        raise PermanentError("nothing was produced")
    return b"{}"
"""


@pytest.fixture
def hidden(installed: Installed, tmp_path: Path) -> Installed:
    """A working directory with modules that have the names of ours, and a target type of a user's."""
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text('raise ImportError(f"{__name__} is the user\'s")\n')
    (tmp_path / "users_target.py").write_text(TARGET)
    return installed._replace(elsewhere=tmp_path)


def test_a_module_of_the_working_directory_hides_none_of_ours(hidden: Installed) -> None:
    mine = ("--set", f"{NOTIFICATION}.target-type=users_target:target", f"{NOTIFICATION}.http.enabled=false")
    hidden.run("resequencer", "check", *mine)
    hidden.run("resequencer", "start", *mine)
    hidden.run("resequencer", "simulate", "--units", "10", "--seed", "1", *mine)
    hidden.run("resequencer", "status", *mine)
    hidden.run("resequencer", "stop", *mine)


@pytest.fixture
def with_spark(installed: Installed) -> Installed:
    """PySpark comes from the environment of the tests: it is half a gigabyte."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("PySpark is not installed")
    (site,) = (installed.environment / "lib").glob("python*/site-packages")
    (site / "zz_spark.pth").write_text(f"{Path(spec.origin).parents[1]}\n")
    return installed


@pytest.mark.nightly("jobs")
def test_the_audit_runs_on_kafka_where_names_are_taken_by_others_and_by_the_user(
    among_others: Installed, hidden: Installed, with_spark: Installed, kafka: KafkaServer, fresh_name: Callable[[str], str]
) -> None:
    topics = [fresh_name(each) for each in ("in", "out", "dead")]
    kafka.create_topics(*topics, partitions=4)
    mine = ("--set", *kafka_overrides(kafka.bootstrap, *topics, fresh_name("group")), f"{NOTIFICATION}.http.enabled=false")
    hidden.run("resequencer", "start", *mine)
    hidden.run("resequencer", "simulate", "--units", "30", "--seed", "7", "--late", "0", *mine)
    hidden.run("resequencer", "verify", "--follow", "--give-up-after", "60s", *mine)
    hidden.run("resequencer", "stop", *mine)
    audited = json.loads(hidden.run("resequencer", "audit", "--json", *mine).stdout)
    assert audited["good"] is True
    built = hidden.run("resequencer", "lookups", "build", "--config", "conf/lookups.conf", code=3)
    assert "Traceback" not in built.stderr
