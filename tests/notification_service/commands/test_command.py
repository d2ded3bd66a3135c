"""The table of commands names functions, which are imported when their command is used."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pkgutil import resolve_name
from typing import get_type_hints

import pytest

from notification_service.command_line import COMMANDS
from notification_service.commands.command import Command


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_each_command_names_a_function_of_its_arguments(command: Command) -> None:
    hints = get_type_hints(resolve_name(command.function))
    assert hints["arguments"] is Namespace
    assert issubclass(hints["return"], int)
    if command.arguments_of is not None:
        assert get_type_hints(resolve_name(command.arguments_of)) == {"parser": ArgumentParser, "return": type(None)}


@pytest.mark.slow
def test_a_command_imports_no_other_one() -> None:
    program = """
import sys
from notification_service.command_line import parse
parse(["status"])
print(*sorted(each for each in sys.modules if each.startswith("notification_service.commands.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["notification_service.commands.command"]
