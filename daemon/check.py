"""`resequencer check`: validates the configuration and prints the effective one."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from daemon.composition import refuse_unusable
from daemon.configuration import Configuration, load
from daemon.exit_code import ExitCode
from daemon.refusal import ConfigurationRefused
from daemon.sections import StorageType
from domain.errors import ConfigurationError, TransientError
from storage.embedded_database import Database
from storage.port import StorageRefused

Attempt = Callable[[Configuration], None]
"""Tries one thing that the service will need, and changes nothing.

Raises a `TransientError`, a `StorageRefused` or an `OSError` that says what is out of reach.
"""

_BUSY_TIMEOUT_MS = 5_000


def directories_are_writable(configuration: Configuration) -> None:
    """Raises OSError with the first directory in which nothing can be written. Creates none: the nearest existing one counts."""
    notification = configuration.notification
    for directory in (notification.run_directory, notification.output_directory, configuration.storage.embedded_file.parent):
        existing = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionError(None, "cannot be written to", str(directory))


def database_is_usable(configuration: Configuration) -> None:
    """Begins to write to the embedded database, which a running service allows; one that is not there yet will be made.

    Raises:
        StorageUnavailable, StorageRefused: As the service would meet them.
        OSError: Its directory is missing, and is not the run directory, which the service makes.
    """
    file = configuration.storage.embedded_file
    if configuration.resequencer.storage_type is not StorageType.EMBEDDED:
        return
    if file.exists():
        database = Database(file, _BUSY_TIMEOUT_MS)
        try:
            with database.writing():
                pass
        finally:
            database.close()
    elif not file.parent.is_dir() and file.parent != configuration.notification.run_directory:
        raise FileNotFoundError(None, "does not exist; make it, or mount what should be there", str(file.parent))


ATTEMPTS: list[Attempt] = [directories_are_writable, database_is_usable]
"""What `--connect` tries, beside reading the settings and importing what the configuration names."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--connect", action="store_true", help="also try the directories and servers that it names")


def check(arguments: Namespace) -> ExitCode:
    """Print the effective configuration, or with --json one object; what is refused is raised, after --json has told it too."""
    try:
        configuration = load(arguments.config, arguments.overrides)
        if arguments.connect:
            refuse_unusable(configuration)
    except ConfigurationError as error:
        if arguments.json:
            _print_json({"valid": False, "problems": _problems(error)})
        raise
    unreachable = _unreachable(configuration, ATTEMPTS) if arguments.connect else []
    if arguments.json:
        _print_json(_report(configuration, unreachable))
    else:
        _print_text(configuration)
    for problem in unreachable:
        sys.stderr.write(f"resequencer: {problem}\n")
    return ExitCode.OUT_OF_REACH if unreachable else ExitCode.DONE


def _unreachable(configuration: Configuration, attempts: Sequence[Attempt]) -> list[str]:
    problems = []
    for attempt in attempts:
        try:
            attempt(configuration)
        except OSError as error:
            problems.append(f"{error.filename or configuration.file}: {error.strerror or error}")
        except (TransientError, StorageRefused) as error:
            problems.append(str(error))
    return problems


def _problems(error: ConfigurationError) -> list[dict[str, str]]:
    each = error.problems if isinstance(error, ConfigurationRefused) else (error,)
    return [{"path": problem.path, "problem": problem.problem} for problem in each]


def _report(configuration: Configuration, unreachable: Sequence[str]) -> dict[str, object]:
    unsupported = configuration.unsupported()
    return {
        "valid": True,
        "file": str(configuration.file),
        "warnings": [*configuration.warnings],
        "unsupported": [] if unsupported is None else _problems(unsupported),
        "unreachable": [*unreachable],
        "keys": {each.path: {"value": each.value, "layer": each.layer} for each in configuration.effective},
    }


def _print_text(configuration: Configuration) -> None:
    lines = [f"# {configuration.file} is valid. What is not the default says where it came from."]
    lines.extend(map(str, configuration.effective))
    unsupported = configuration.unsupported()
    remarks = [*configuration.warnings, *(str(unsupported).splitlines() if unsupported else ())]
    lines.extend(f"# note: {remark}" for remark in remarks)
    sys.stdout.write("\n".join(lines) + "\n")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
