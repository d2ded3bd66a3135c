"""`resequencer check`: validates the configuration and prints the effective one."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import closing

from connectors.port import TransportRefused
from daemon.composition import refuse_unusable
from daemon.configuration import Configuration, load
from daemon.exit_code import ExitCode
from daemon.infinispan_settings import infinispan_server
from daemon.kafka_settings import kafka_settings
from daemon.redis_settings import redis_settings
from daemon.refusal import ConfigurationRefused
from daemon.sections import StorageType, TransportType
from domain.errors import ConfigurationError, TransientError
from domain.record import Partition
from storage.embedded_database import Database
from storage.port import StorageRefused

Attempt = Callable[[Configuration], Sequence[str] | None]
"""Tries one thing that the service will need, and changes nothing; returns what the user should know, a sentence each.

Raises a `TransientError`, a `StorageRefused`, a `TransportRefused` or an `OSError` that says what is out of reach.
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


def redis_is_usable(configuration: Configuration) -> Sequence[str]:
    """Looks at the Redis server as a takeover does, and whether the user has all rights.

    Raises:
        StorageUnavailable, StorageRefused: As the service would meet them.
    """
    if configuration.resequencer.storage_type is not StorageType.REDIS:
        return ()
    from storage.redis import RedisStorage  # Here, for its client takes a quarter of a second to import.

    storage = RedisStorage(redis_settings(configuration), str)
    try:
        return storage.inspect(Partition(configuration.ingress.topic, 0))
    finally:
        storage.close()


def infinispan_is_usable(configuration: Configuration) -> Sequence[str]:
    """Looks at the Infinispan cache as a takeover does, but makes none.

    Raises:
        StorageUnavailable, StorageRefused: As the service would meet them.
    """
    if configuration.resequencer.storage_type is not StorageType.INFINISPAN:
        return ()
    from storage.infinispan_rest import InfinispanRest  # Here, for its client takes a fifth of a second to import.

    with closing(InfinispanRest(infinispan_server(configuration))) as cache:
        return cache.inspect()


def kafka_is_usable(configuration: Configuration) -> Sequence[str]:
    """Looks at the topics and at the group's positions as a takeover does, but takes nothing over.

    Raises:
        TransportUnavailable, TransportRefused: As the service would meet them.
    """
    if configuration.ingress.transport is not TransportType.KAFKA:
        return ()
    from connectors.kafka_inspection import inspect  # Here, for its client takes a third of a second to import.

    return inspect(kafka_settings(configuration))


ATTEMPTS: list[Attempt] = [directories_are_writable, database_is_usable, redis_is_usable, infinispan_is_usable, kafka_is_usable]
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
    unreachable, remarks = _try_all(configuration, ATTEMPTS if arguments.connect else ())
    if arguments.json:
        _print_json(_report(configuration, unreachable, remarks))
    else:
        _print_text(configuration, remarks)
    for problem in unreachable:
        sys.stderr.write(f"resequencer: {problem}\n")
    return ExitCode.OUT_OF_REACH if unreachable else ExitCode.DONE


def _try_all(configuration: Configuration, attempts: Sequence[Attempt]) -> tuple[list[str], list[str]]:
    """What is out of reach, and what was remarked on."""
    problems: list[str] = []
    remarks: list[str] = []
    for attempt in attempts:
        try:
            remarks.extend(attempt(configuration) or ())
        except OSError as error:
            problems.append(f"{error.filename or configuration.file}: {error.strerror or error}")
        except (TransientError, StorageRefused, TransportRefused) as error:
            problems.append(str(error))
    return problems, remarks


def _problems(error: ConfigurationError) -> list[dict[str, str]]:
    each = error.problems if isinstance(error, ConfigurationRefused) else (error,)
    return [{"path": problem.path, "problem": problem.problem} for problem in each]


def _report(configuration: Configuration, unreachable: Sequence[str], remarks: Sequence[str]) -> dict[str, object]:
    return {
        "valid": True,
        "file": str(configuration.file),
        "warnings": [*configuration.warnings, *remarks],
        "unreachable": [*unreachable],
        "keys": {each.path: {"value": each.value, "layer": each.layer} for each in configuration.effective},
    }


def _print_text(configuration: Configuration, found: Sequence[str]) -> None:
    lines = [f"# {configuration.file} is valid. What is not the default says where it came from."]
    lines.extend(map(str, configuration.effective))
    remarks = [*configuration.warnings, *found]
    lines.extend(f"# note: {remark}" for remark in remarks)
    sys.stdout.write("\n".join(lines) + "\n")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
