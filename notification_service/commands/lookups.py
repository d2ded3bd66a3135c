"""`resequencer lookups build | list | show | rollback`: builds, shows and switches the lookups of the handlers."""

import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from notification_service.commands.command import Subcommand, add_subcommands, load_for
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.lookup_sources import load_job_settings
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.publication import roll_back
from notification_service.lookups.release import open_release, read_manifest
from notification_service.lookups.shapes import CUSTOMERS, ReleaseRefused, account_of, key_of, shown_value
from notification_service.status.service_report import find_reports
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_holder
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.working_directory import let_tasks_see_working_directory
from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from notification_service.jobs.lookups.job import Built


def _build(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Exit code 0 if a version was published.

    Raises:
        ConfigurationError: The sources are not described, or Spark is not installed.
        JobRefused, PublishingRefused: Nothing was published.
    """
    settings = load_job_settings(configuration)
    if find_spec("pyspark") is None:
        raise ConfigurationError("pyspark", "is not installed; install it by `make lookups`, or pip install '.[pipeline]'")
    from notification_service.jobs.lookups.job import STEPS, build_lookups  # Imported here: Spark takes a second to import.
    from notification_service.jobs.lookups.specs import find_specs
    from notification_service.jobs.spark.session import spark_session

    let_tasks_see_working_directory()
    find_specs(settings.specs)  # Refuse a wrong configuration before Spark is started.
    steps = len(STEPS) * sum(1 for sources in settings.sources.values() if sources)
    with _progress() as progress:
        bar = progress.add_task("starting Spark", total=steps + 1)

        def tell(step: str) -> None:
            progress.update(bar, advance=1, description=step)
            if not progress.console.is_terminal:
                progress.console.print(step)

        with spark_session(arguments.master or settings.master, settings.spark, settings.application) as spark:
            built = build_lookups(spark, settings, SystemClock().now(), metadata.version("resequencer"), tell)
        progress.update(bar, completed=steps + 1, description="published")
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(built)).decode() + "\n")
    else:
        _print(built)
    return ExitCode.DONE


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _print(built: "Built") -> None:
    console = Console()
    table = Table("lookup", "source")
    for name in ("read", "refused", "keys"):
        table.add_column(name, justify="right")
    for lookup in built.lookups:
        for number, source in enumerate(lookup.sources):
            cells = (lookup.name, f"{lookup.keys:,}") if number == 0 else ("", "")
            table.add_row(cells[0], source.place, f"{source.rows_read:,}", f"{source.rows_refused:,}", cells[1])
    console.print(table)
    for source in (source for lookup in built.lookups for source in lookup.sources if source.remark is not None):
        console.print(f"{source.place}: {source.remark}", soft_wrap=True)
    for lookup in built.lookups:
        if lookup.doubled or lookup.contradictory:
            console.print(f"{lookup.name}: {lookup.doubled:,} older or doubled rows, {lookup.contradictory:,} contradictory keys")
    if built.quarantine is not None:
        console.print(f"What was refused is in {built.quarantine}", soft_wrap=True)
    console.print(f"Published {built.version}", soft_wrap=True)


def lookups(arguments: Namespace) -> ExitCode:
    """Run one subcommand. Exit code 0 only if it succeeded, or if the value that was looked up exists."""
    return _SUBCOMMANDS[arguments.subcommand or "list"](arguments, load_for(arguments))


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of each subcommand; without one it is `list`."""
    add_subcommands(
        parser,
        Subcommand("build", "build all lookups from their sources and publish them as a new version", _add_build),
        Subcommand("list", "the published versions, newest first, and the workers that use each"),
        Subcommand("show", "the value that a lookup of the current version has for a key", _add_show),
        Subcommand("rollback", "switch to another published version", _add_rollback),
        is_required=False,
    )


def _add_build(parser: ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: spark.master of the sources, local[*])")


def _add_show(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lookup's name, such as institutions")
    parser.add_argument("key", metavar="KEY", nargs="+", help="the key's parts: bank DE 37040044; '' is any processing entity")


def _add_rollback(parser: ArgumentParser) -> None:
    parser.add_argument("version", metavar="VERSION", help="the version that `list` shows")


def _list(arguments: Namespace, configuration: Configuration) -> ExitCode:
    directory = _directory(configuration)
    current, workers = directory.get_current().version, _workers(configuration)
    found = []
    for version in reversed(directory.versions()):
        its: dict[str, Any] = {"version": version, "is_current": version == current, "workers": workers[version]}
        try:
            tables = read_manifest(directory, version).tables
            its["tables"] = {name: {"rows": table.rows, "bytes": table.bytes} for name, table in tables.items()}
        except ReleaseRefused as error:
            its["problem"] = str(error)
        found.append(its)
    sys.stdout.write(_as_json(found) if arguments.json else "".join(map(_line, found)))
    return ExitCode.DONE


def _workers(configuration: Configuration) -> Mapping[str, list[int]]:
    """Return, by version, the slots of the workers that use it; empty if no service with this configuration runs."""
    run_directory, found = configuration.notification.run_directory, defaultdict[str, list[int]](list)
    for report in find_reports(run_directory) if find_holder(run_directory) is not None else ():
        if report.lookups_version is not None:
            found[report.lookups_version].append(report.slot)
    return found


def _line(release: dict[str, Any]) -> str:
    mark = "* " if release["is_current"] else "  "
    content = release.get("problem") or ", ".join(f"{name} {each['rows']}" for name, each in release["tables"].items())
    users = "".join(f"; worker {slot} uses it" for slot in release["workers"])
    return f"{mark}{release['version']}  {content}{users}\n"


def _show(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Print the value of one key, or that the lookup lacks the key. A damaged release is refused before anything is printed."""
    directory = _directory(configuration)
    release = open_release(directory, directory.get_current())
    try:
        if not release.has(arguments.name):
            known = ", ".join(sorted(release.manifest.tables))
            raise ConfigurationError(arguments.name, f"is no lookup of {release.version}; there are {known}")
        is_account = (arguments.name, *arguments.key[:1]) == (CUSTOMERS, "account")
        key = key_of(*map(account_of, arguments.key)) if is_account else key_of(*arguments.key)
        found = release.find(arguments.name, key)
        value = None if found is None else shown_value(arguments.name, key, found)
    finally:
        release.close()
    if arguments.json:
        sys.stdout.write(_as_json({"version": release.version, "key": arguments.key, "value": value}))
    elif value is None:
        sys.stdout.write(f"{arguments.name} of {release.version} has no key {' '.join(arguments.key)!r}\n")
    else:
        sys.stdout.write("".join(f"{name}: {'' if each is None else each}\n" for name, each in value.items()))
    return ExitCode.DONE if value is not None else ExitCode.FAILED


def _roll_back(arguments: Namespace, configuration: Configuration) -> ExitCode:
    directory = _directory(configuration)
    with directory.publishing():
        roll_back(directory, arguments.version)
    current = {"version": arguments.version}
    sys.stdout.write(
        _as_json(current) if arguments.json else f"lookups {arguments.version} are current now; workers switch to them\n"
    )
    return ExitCode.DONE


def _directory(configuration: Configuration) -> LookupsDirectory:
    return LookupsDirectory(configuration.lookups.directory)


def _as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


_SUBCOMMANDS: dict[str, Callable[[Namespace, Configuration], ExitCode]] = {
    "build": _build,
    "list": _list,
    "show": _show,
    "rollback": _roll_back,
}
