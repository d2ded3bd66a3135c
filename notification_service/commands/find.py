"""`resequencer find TEXT`: one search for units, messages, notifications, dead letters, positions of records, and payments."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import msgspec

from notification_service.aggregation.payments.group_view import GroupView, describe
from notification_service.commands.command import load_for, say
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.console.access.identity import AuditLog
from notification_service.console.find import NOT_COUNTED, FindAnswer, GroupsFound, Reach, find
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.aggregation import open_view, payments_store
from notification_service.wiring.console import console_sources
from notification_service.wiring.dead_letter_stores import sign
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_SECONDS = 2.0


def find_anything(arguments: Namespace) -> ExitCode:
    """Print what was found and what was searched. Exit code 0 if something was found."""
    configuration = load_for(arguments)
    sources = console_sources(configuration)
    log = AuditLog(sources.run_directory, configuration.http.audit_retention_ms, sources.steady_clock)

    def note() -> None:
        log.note_from_shell(sign().by, "find.end-to-end-id", text=arguments.text)

    with (
        nullcontext() if sources.open_view is None else closing(sources.open_view()) as view,
        nullcontext() if sources.open_ledger is None else closing(sources.open_ledger()) as ledger,
    ):
        reach = Reach(sources, lambda: nullcontext(view), _groups_of(configuration), ledger, note)
        answer = find(reach, arguments.text, is_all=arguments.all)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        sys.stdout.write("".join(printable(line) + "\n" for line in _lines(answer)))
    if answer.found:
        return ExitCode.DONE
    say(f"nothing was found of {arguments.text} with the configuration {arguments.config}")
    return ExitCode.FAILED


def add_arguments(parser: ArgumentParser) -> None:
    what = "the whole id: of a unit of work, a message or its group, a notification, a dead letter (TOPIC-PARTITION#NUMBER), a "
    parser.add_argument(
        "text", metavar="TEXT", help=f"{what}payment (EndToEndId), or the position of a record (TOPIC-PARTITION@OFFSET)"
    )
    what = "search everywhere, all dead letters and orders, for up to 20 seconds each, also if something was found"
    parser.add_argument("--all", action="store_true", help=what)


def _lines(answer: FindAnswer) -> list[str]:
    found = [f"{each.kind} {each.id}: {each.text}; {each.command}" for each in answer.found]
    meaning = [f"can mean: {each}" for each in answer.meaning if not answer.found]
    return [*found, *meaning, *(f"searched for {each.what}: {each.text}" for each in answer.searched)]


def _groups_of(configuration: Configuration) -> Callable[[str], GroupsFound]:
    def in_files(text: str) -> GroupsFound:
        found: list[GroupView] = []
        until = monotonic() + _SECONDS
        try:
            with (
                TemporaryDirectory(prefix="groups-") as directory,
                closing(open_view(configuration, payments_store(configuration), Path(directory))) as view,
            ):
                for key, head in view.heads():
                    group = describe(key, head)
                    found += [group] if text in (key, group.message_id) else []
                    if monotonic() > until:
                        return GroupsFound(tuple(found), "groups by key and by message id: the time for it is over")
        except ResequencerError as error:
            return GroupsFound(tuple(found), f"could not be read: {printable(str(error))}")
        return GroupsFound(tuple(found), "all groups by key and by message id")

    if not configuration.counts_payments:
        return lambda _: GroupsFound((), NOT_COUNTED)
    if configuration.notification.transport is TransportType.FILE:
        return in_files
    why = "the groups are on a topic, which can be read only as a whole: `resequencer groups show MESSAGE-ID` does so, and the "
    return lambda _: GroupsFound((), f"not searched: {why}console has an index of them")
