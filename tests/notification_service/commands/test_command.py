"""The table of commands names functions, which are imported when their command is used."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from importlib import metadata
from pkgutil import resolve_name
from typing import get_type_hints

import pytest

from notification_service.command_line import COMMANDS, parse
from notification_service.commands.command import Command


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_each_command_names_a_function_of_its_arguments(command: Command) -> None:
    hints = get_type_hints(resolve_name(command.function))
    assert hints["arguments"] is Namespace
    assert issubclass(hints["return"], int)
    if command.arguments_of is not None:
        assert get_type_hints(resolve_name(command.arguments_of)) == {"parser": ArgumentParser, "return": type(None)}


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"resequencer {metadata.version('resequencer')}\n")


def test_an_argument_that_is_not_utf_8_is_refused_by_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["find", "x\udcff"], ["units", "show", "x\udcff"]):
        with pytest.raises(SystemExit) as ended:
            parse(words)
        assert ended.value.code == 2
        assert "the argument x\\udcff is not UTF-8: give it in UTF-8" in capsys.readouterr().err


@pytest.mark.slow
def test_a_command_imports_no_other_one() -> None:
    program = """
import sys
from notification_service.command_line import parse
parse(["status"])
print(*sorted(each for each in sys.modules if each.startswith("notification_service.commands.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["notification_service.commands.command", "notification_service.commands.status"]


@pytest.mark.slow
def test_no_command_needs_a_library_of_an_extra_or_the_client_of_kafka_to_begin() -> None:
    """Extras may not be installed, and Kafka's client takes a third of a second: they are imported where they are used."""
    program = """
import sys
from pkgutil import resolve_name
from notification_service.command_line import COMMANDS
for each in COMMANDS.values():
    for name in filter(None, (each.function, each.arguments_of)):
        resolve_name(name)
print(*sorted({"kafka", "paho", "proton", "pyspark", "starlette", "uvicorn"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
