"""`resequencer groups …`: runs an aggregation worker, lists and shows the payments of messages, and closes a group."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import msgspec

from notification_service.aggregation.payments.commands import encode_close
from notification_service.aggregation.payments.group_view import GroupView, find_described
from notification_service.aggregation.payments.head import GroupState, decode_member
from notification_service.aggregation.settings import AggregationSettings
from notification_service.aggregation.view import StoreView
from notification_service.commands.command import Subcommand, add_subcommands, load_for, say, stop_signal, write_row
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.events.settings import EventsSettings
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.service_log import configure_logs
from notification_service.wiring.aggregation import StoreNames, make_report, make_worker, open_commands, open_view, payments_store
from notification_service.wiring.dead_letter_stores import note_from_shell, sign
from resequencer.clock import Instant, instant_text
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.printable import counted

_SHOWN_MEMBERS = 100
_SHOWN_SENDERS = 10
_MAX_BECAUSE = 1_000
_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.5


class GroupRefused(ResequencerError):
    """There is no such group, or it cannot be closed."""


class ShownMember(msgspec.Struct, frozen=True):
    """A payment of a group: its latest status, and its amount with the currency."""

    unit: str
    status: str
    amount: str | None


def groups(arguments: Namespace) -> ExitCode:
    """Run the subcommand."""
    configuration = load_for(arguments)
    if not configuration.aggregation.is_enabled:
        raise ConfigurationError(path_of(AggregationSettings, "is_enabled"), "is false: set it to true, and restart the service")
    if arguments.subcommand == "run":
        return _run(arguments, configuration)
    if not configuration.counts_payments:
        problem = f"is {configuration.ingress.events.format}: only payments of IPF's envelopes have groups"
        raise ConfigurationError(path_of(EventsSettings, "format"), problem)
    names = payments_store(configuration)
    with _viewing(configuration, names) as view:
        if arguments.subcommand == "list":
            return _list(arguments, view)
        return _show(arguments, view) if arguments.subcommand == "show" else _close(arguments, configuration, names, view)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the subcommands of `groups`."""
    add_subcommands(
        parser,
        Subcommand("list", "list the groups, the newest first: the payments of a message, and how many are through", _add_list),
        Subcommand("show", "show one group, and where its first payments are", _add_key),
        Subcommand("close", "end a group that cannot complete: the report shows it as it is now", _add_close),
        Subcommand("run", "count in the foreground until SIGTERM; the service does so by itself", _add_run),
        is_required=True,
    )


def group_line(group: GroupView) -> str:
    """Return a group on one line for people."""
    of = "?" if group.total is None else str(group.total)
    statuses = ", ".join(f"{each.status} {each.count}" for each in group.statuses)
    parts = [
        f"{group.key}  {group.message_id} of {group.initiating_party}  {group.state.value}",
        f"{group.final} of {of} final{f': {statuses}' if statuses else ''}",
        f"since {instant_text(group.first_at)}, {counted(group.reports, 'report')}",
        *group.problems,
    ]
    return "  ".join(parts)


def _run(arguments: Namespace, configuration: Configuration) -> ExitCode:
    stop = stop_signal(arguments)
    configure_logs(configuration.logging)
    worker = make_worker(configuration, arguments.slot, stop)
    worker.run(lambda: stop.is_set, make_report(configuration, arguments.slot))
    return ExitCode.DONE


def _list(arguments: Namespace, view: StoreView) -> ExitCode:
    view.refresh()
    newest, unreadable = list[tuple[Instant, str]](), 0
    for key, head in view.heads():
        if (group := find_described(key, head)) is None:
            unreadable += 1
        elif _is_wanted(arguments, group):
            newest.append((group.first_at, key))
    newest.sort(reverse=True)
    shown = newest if arguments.limit is None else newest[: max(0, arguments.limit)]
    for _, key in shown:
        if (found := view.find(key)) is not None and (group := find_described(key, found.body)) is not None:
            write_row(arguments, group, group_line(group))
    of_all = "" if len(shown) == len(newest) else f", the {len(shown)} newest are shown (--limit)"
    of_later = f"; {counted(unreadable, 'group')} that a later version wrote cannot be read" if unreadable else ""
    say(f"{counted(len(newest), 'group')}{of_all}{of_later}")
    return ExitCode.DONE


def _is_wanted(arguments: Namespace, group: GroupView) -> bool:
    is_of_state = arguments.state is None or group.state.value == arguments.state
    return is_of_state and group.has_text(arguments.text) and (group.needs_person or not arguments.problems)


def _show(arguments: Namespace, view: StoreView) -> ExitCode:
    group = _find(view, arguments.key)
    write_row(arguments, group, group_line(group))
    members = list(islice(_members(view, group.key), _SHOWN_MEMBERS + 1))
    for each in members[:_SHOWN_MEMBERS]:
        line = f"{each.unit}  {each.status}{f'  {each.amount}' if each.amount else ''}"
        write_row(arguments, each, line)
    if len(members) > _SHOWN_MEMBERS:
        say(f"these are the first {_SHOWN_MEMBERS} payments")
    return ExitCode.DONE


def _close(arguments: Namespace, configuration: Configuration, names: StoreNames, view: StoreView) -> ExitCode:
    if not 0 < len(arguments.because.strip()) <= _MAX_BECAUSE:
        raise GroupRefused(f"--because has {len(arguments.because)} characters; give 1 to {_MAX_BECAUSE}")
    before = _find(view, arguments.key)
    if before.state in (GroupState.CLOSED, GroupState.ENDED):
        raise GroupRefused(f"group {before.key} is {before.state.value} already, so it cannot be closed")
    note_from_shell(configuration, "groups.close", group=before.key, because=arguments.because.strip())
    with closing(open_commands(configuration, names)) as commands:
        commands.update(before.key, None, encode_close(sign().by, arguments.because.strip()))
    until = monotonic() + _WAIT_SECONDS
    while monotonic() < until:
        group = _find(view, before.key)
        if group.state is GroupState.CLOSED:
            write_row(arguments, group, group_line(group))
            return ExitCode.DONE
        sleep(_LOOK_SECONDS)
    say(f"the command is given, and not carried out within {_WAIT_SECONDS:.0f} s: a worker that runs will do so")
    return ExitCode.FAILED


@contextmanager
def _viewing(configuration: Configuration, names: StoreNames) -> Iterator[StoreView]:
    with TemporaryDirectory(prefix="groups-") as directory, closing(open_view(configuration, names, Path(directory))) as view:
        yield view


def _find(view: StoreView, wanted: str) -> GroupView:
    """Return the group of this key, else the only one whose message has this id.

    Raises:
        GroupRefused: There is none, several senders have used this id, or a later version wrote it.
    """
    view.refresh(wanted)
    if (found := view.find(wanted)) is not None:
        if (known := find_described(wanted, found.body)) is None:
            raise GroupRefused(f"the values of group {wanted} cannot be read; a later version wrote them")
        return known
    view.refresh()
    groups = (find_described(key, head) for key, head in view.heads())
    named = [each for each in groups if each is not None and each.message_id == wanted]
    if len(named) > 1:
        senders = ", ".join(f"{each.key} of {each.initiating_party}" for each in named[:_SHOWN_SENDERS])
        raise GroupRefused(f"{len(named)} groups have the message id {wanted}; give the key of one: {senders}")
    if not named:
        raise GroupRefused(f"no group has the key or the message id {wanted}; `resequencer groups list` lists the groups")
    return named[0]


def _members(view: StoreView, key: str) -> Iterator[ShownMember]:
    for unit, body in view.members(key, "", _SHOWN_MEMBERS + 1):
        member = decode_member(body)
        yield ShownMember(unit, member.status, None if member.amount is None else f"{member.amount} {member.currency}")


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument("--slot", type=int, default=0, metavar="N", help="which of the workers it is, from 0")
    parser.add_argument("--lifeline", type=int, help=SUPPRESS)


def _add_list(parser: ArgumentParser) -> None:
    parser.add_argument("--state", choices=[each.value for each in GroupState], help="only groups in this state")
    what = "only groups whose key, message id or sender contains this text, whatever its case"
    parser.add_argument("--text", default="", metavar="TEXT", help=what)
    parser.add_argument("--problems", action="store_true", help="only groups with a problem that a person has to solve")
    parser.add_argument("--limit", type=int, metavar="N", help="show at most N groups, the newest; default: all")


def _add_key(parser: ArgumentParser) -> None:
    what = "the id of the message (MsgId), or the id of the group, as `groups list` and the header group-id have it"
    parser.add_argument("key", metavar="MESSAGE-ID", help=what)


def _add_close(parser: ArgumentParser) -> None:
    _add_key(parser)
    parser.add_argument("--because", required=True, metavar="TEXT", help="the reason; the report and the group show it")
