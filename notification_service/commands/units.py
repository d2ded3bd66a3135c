"""`resequencer units list | show | release | …`: what waits, one unit in full, and orders. The service may run or be stopped.

`resequencer find TEXT`: one search for units, messages, notifications, dead letters, positions of records, and payments.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from heapq import nsmallest
from pathlib import Path
from random import Random
from shlex import quote
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import msgspec

from guardian.headers import NOTIFICATION_ID, find_unit, own_texts
from notification_service.aggregation.payments.group_view import GroupView, find_described
from notification_service.commands.command import Subcommand, add_subcommands, load_for, read_partition, say
from notification_service.commands.orders import UNIT_ORDERS, duration, order_for_unit, order_line, unit_subcommands
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.scan import scan_output
from notification_service.connectors.line_format import Line, decode_line
from notification_service.console.find_unit import (
    DAY_MS,
    NOT_STORED,
    Search,
    find_hindrance,
    find_service_hindrance,
    find_story,
    known_partitions,
    prospect_of,
    relative_text,
)
from notification_service.console.search.find import NOT_COUNTED, FindAnswer, GroupsFound, Reach, find
from notification_service.console.sources import Sources
from notification_service.console.unit_story import UnitStory
from notification_service.console.waiting.units import WaitingUnit
from notification_service.payments.envelope import DataEnvelope
from notification_service.simulator.verify.story import Step, StepKind
from notification_service.status.report import UnitWait
from notification_service.status.service_report import ServiceReport
from notification_service.status.text import wake_text
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.aggregation import open_view, payments_store
from notification_service.wiring.composition import make_data_handler_of, make_strategy_of
from notification_service.wiring.console import console_sources
from notification_service.wiring.dead_letter_stores import note_from_shell
from resequencer.clock import Instant, instant_of, instant_text
from resequencer.errors import ResequencerError
from resequencer.event import Event
from resequencer.handler import Handled, Marks
from resequencer.keys.value_types import Duration
from resequencer.notification import notification_id
from resequencer.printable import counted, duration_text, printable
from resequencer.record import Partition
from resequencer.storage_port import StorageUnavailable, WaitKind, Waits
from resequencer.turn.decide import take_turn
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Wake
from storage.view_port import StorageView

_AGE = Duration("0s", "3650d")
_LIMIT = 100
_SECONDS, _ALL_SECONDS = 10.0, 600.0
_TRIES = 3


class _Listed(UnitWait, frozen=True):
    """A line of the list. `hindrance` says why nothing is done at `until`, None if its worker works."""

    hindrance: str | None = None


def units(arguments: Namespace) -> ExitCode:
    """Run one subcommand."""
    if arguments.subcommand in UNIT_ORDERS:
        return order_for_unit(arguments)
    sources = console_sources(load_for(arguments))
    with nullcontext() if sources.open_view is None else closing(sources.open_view()) as view:
        return _list(arguments, sources, view) if arguments.subcommand == "list" else _show(arguments, sources, view)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of each subcommand."""
    add_subcommands(
        parser,
        Subcommand("list", "one line per waiting unit, the longest wait first", _add_list),
        Subcommand("show", "everything that is known of one unit, without payment data", _add_show),
        *unit_subcommands(),
        is_required=True,
    )


def _add_list(parser: ArgumentParser) -> None:
    parser.add_argument("beginning", nargs="?", default="", metavar="ID", help="only units whose ids begin with this text")
    parser.add_argument(
        "--for",
        dest="waits_for",
        default="",
        metavar="TEXT",
        help="only units that wait for something that begins with TEXT, such as sequence",
    )
    kinds = [each.value for each in WaitKind]
    parser.add_argument(
        "--kind", choices=kinds, default="", help="only units with this kind of wait; call: their handler is called now"
    )
    parser.add_argument("--partition", type=read_partition, metavar="TOPIC-N", help="only units of this partition")
    parser.add_argument(
        "--older-than",
        type=duration(_AGE),
        default=0,
        metavar="DURATION",
        help="only units that have waited at least this long: 10m",
    )
    parser.add_argument("--limit", type=int, default=_LIMIT, metavar="N", help=f"show at most N units; default: {_LIMIT}")


def _add_show(parser: ArgumentParser) -> None:
    parser.add_argument("unit", metavar="ID", help="the unitOfWorkId")
    parser.add_argument("--partition", type=read_partition, metavar="TOPIC-N", help="look in this partition only")
    parser.add_argument("--all", action="store_true", help="search all dead letters and orders, not the newest only")


def _list(arguments: Namespace, sources: Sources, view: StorageView | None) -> ExitCode:
    """Print the units, then how many there are.

    Raises:
        ResequencerError: A partition could not be read; the units of the others were printed.
    """
    problems: list[ResequencerError] = []
    report, now = sources.find_report(), sources.clock.now()
    read = total = 0

    def chosen() -> Iterator[WaitingUnit]:
        nonlocal read, total
        for each in _reported(report) if view is None else _stored(arguments.partition, sources, view, problems):
            if arguments.partition not in (None, Partition.find(each.partition)):
                continue
            read += 1
            is_named = each.unit.startswith(arguments.beginning) and each.waits_for.startswith(arguments.waits_for)
            if is_named and arguments.kind in ("", each.kind) and each.since <= now - arguments.older_than:
                total += 1
                yield each

    shown = nsmallest(max(0, arguments.limit), chosen(), key=lambda each: (each.since, each.unit))
    for each in (_listed(one, report) for one in shown):
        sys.stdout.write(_json(each) if arguments.json else printable(_line(each, now)) + "\n")
    sys.stdout.flush()
    is_filtered = bool(arguments.beginning or arguments.waits_for or arguments.kind or arguments.older_than)
    count = f"{total:,} of {counted(read, 'waiting unit')} match" if is_filtered else counted(total, "waiting unit")
    of_all = "" if len(shown) == total else f", the {len(shown)} oldest are shown (--limit)"
    source = f"{arguments.partition or 'the storage'} of {arguments.config}"
    if problems:
        source = f"what could be read of {source}"
    if view is None:
        source = f"the last reports of the workers of {arguments.config} alone: {NOT_STORED}"
    say(f"{count}{',' if is_filtered else ''} in {source}{of_all}")
    if (hindrance := find_service_hindrance(report)) is not None:
        say(hindrance)
    if problems:
        raise problems[0]
    return ExitCode.DONE


def _json(row: msgspec.Struct) -> str:
    """Return a line of JSON in ASCII: a control character of an id must not reach a terminal."""
    return json.dumps(msgspec.to_builtins(row)) + "\n"


def _stored(
    partition: Partition | None, sources: Sources, view: StorageView, problems: list[ResequencerError]
) -> Iterator[WaitingUnit]:
    partitions, unknown = ((partition,), ()) if partition else known_partitions(sources, sources.find_report())
    for problem in unknown:
        say(problem)
    for each in partitions:
        try:
            yield from _waiting_in(view, each)
        except ResequencerError as error:
            problems.append(error)


def _waiting_in(view: StorageView, partition: Partition) -> Iterator[WaitingUnit]:
    for unit, waits in _latest(view, partition).items():
        if waits is not None:
            what = (waits.waits_for, waits.kind.value, waits.since, waits.wakes_at, waits.stashed, waits.stashed_bytes)
            yield WaitingUnit(unit, str(partition), *what)


def _latest(view: StorageView, partition: Partition) -> dict[str, Waits | None]:
    """Return the last entry of each unit. A listing that breaks off because much changed is begun again."""
    for remaining_tries in reversed(range(_TRIES)):
        try:
            changes = view.find_waiting(partition, None)
            return {unit: waits for portion in (changes.portions if changes else ()) for unit, waits in portion}
        except StorageUnavailable:
            if not remaining_tries:
                raise
    return {}


def _reported(report: ServiceReport | None) -> Iterator[WaitingUnit]:
    for each in () if report is None else report.whole.oldest_waits:
        since, until = instant_of(each.since), instant_of(each.until)
        yield WaitingUnit(each.unit, each.partition, each.waits_for, each.kind, since, until, each.stashed, 0)


def _listed(each: WaitingUnit, report: ServiceReport | None) -> _Listed:
    since, until = instant_text(each.since), instant_text(each.until)
    hindrance = find_hindrance(report, each.partition)
    return _Listed(each.unit, each.partition, each.waits_for, each.kind, since, until, each.envelopes, hindrance)


def _line(each: UnitWait, now: Instant) -> str:
    until = f"{wake_text(each.kind, each.until)}, {relative_text(instant_of(each.until), now)}"
    stashed = f"{each.stashed} stashed, waiting {duration_text(now - instant_of(each.since))}, {until}"
    return f"{each.since}  {each.unit}  for {each.waits_for}  ({stashed})  {each.partition}"


def _show(arguments: Namespace, sources: Sources, view: StorageView | None) -> ExitCode:
    """Print the story. Exit code 0 only if something of the unit is known; 4 if a problem may have hidden it.

    The configuration is named where nothing is known: it may be another service's.
    """
    since = None if arguments.all else sources.clock.now() - DAY_MS
    search = Search(since, _ALL_SECONDS if arguments.all else _SECONDS, (), arguments.partition)
    with nullcontext() if sources.open_ledger is None else closing(sources.open_ledger()) as ledger:
        story = find_story(sources, nullcontext(view), arguments.unit, search, ledger)
    if arguments.json:
        sys.stdout.write(_json(story))
    else:
        sys.stdout.write("".join(printable(line) + "\n" for line in story_lines(story)))
    if story.is_known:
        return ExitCode.DONE
    say(f"nothing is known of {story.unit} with the configuration {arguments.config}")
    return ExitCode.OUT_OF_REACH if story.problems and view is not None else ExitCode.FAILED


def story_lines(story: UnitStory) -> Iterator[str]:
    """The story as lines for people."""
    yield f"unit: {story.unit}"
    yield from (f"problem: {each}" for each in story.problems)
    yield from (f"also in: {each}; two producers place its envelopes differently" for each in story.also_in)
    if story.partition is None:
        if story.problems and not story.looked_in:
            yield "state: not known, because it could not be read"
        else:
            looked = f", looked in {', '.join(story.looked_in)}" if story.looked_in else ""
            yield f"state: the storage has none{looked}"
        yield from (f"  {each}" for each in story.meaning)
    else:
        yield from _state_lines(story)
    yield from _published_lines(story)
    message = story.group or story.message_id
    yield from () if message is None else (f"message: {story.message_id or message}; resequencer groups show {quote(message)}",)
    yield from _moves(story)
    yield from (f"order: {order_line(each)}" for each in story.found_orders)
    yield from () if story.orders is None else (f"orders searched: {story.orders.searched}",)
    yield from (
        f"dead letter: {each.number}  {each.state}  {each.reason}  at {each.at}: {each.error}"
        for each in story.dead_letters.found
    )
    yield f"dead letters searched: {story.dead_letters.searched}"


def _state_lines(story: UnitStory) -> Iterator[str]:
    wait, state = story.wait, story.state
    holder = "no worker of this machine has it now"
    if story.holder is not None:
        holder = f"worker {story.holder.slot} (process {story.holder.process_id})"
    yield f"partition: {story.partition}, {holder}"
    if wait is None:
        yield "waits: nothing of it waits"
    else:
        now = instant_of(story.as_of)
        since, until = (f"{each}, {relative_text(instant_of(each), now)}" for each in (wait.since, wait.until))
        yield f"waits: for {wait.waits_for} since {since} ({wait.stashed} stashed, {wake_text(wait.kind, until)})"
        yield f"next: {prospect_of(story)}"
    if state is None:
        return
    yield f"handled: {counted(state.handled, 'envelope')}{' or more' if state.is_handled_bounded else ''} by {state.strategy}"
    yield from (f"{name.lower()}: {text}" for name, text in state.facts)
    yield from (f"flow {each.flow}: counted to {each.counted_to}, handled to {each.handled_to}" for each in state.flows)
    for each in state.stash:
        what = each.defect or ", ".join((*each.events, *each.objects)) or "-"
        sequence = "" if each.sequence is None else f"  {each.sequence}"
        yield f"stashed: {each.position}{sequence}  {each.flow}  {what}  since {each.stashed_at or '-'}"
    if state.attempts is not None:
        made = state.attempts
        server = f", waits for {made.dependency} ({made.calls} calls)" if made.dependency else ""
        is_called = wait is not None and wait.kind == WaitKind.CALL
        following = f"its handler has been called since {made.due_at}" if is_called else f"the next is due at {made.due_at}"
        yield f"attempts: {made.made} failed at {made.position}{server}, {following}"
        yield from () if made.why is None else (f"why: {made.why}",)
    yield from (f"payment data: {each.kind} {each.name}, {each.size_bytes} bytes" for each in state.payment_data)


def _moves(story: UnitStory) -> Iterator[str]:
    """What came, and what was delivered."""
    if story.arrivals is not None:
        yield from (f"came: {each.at or '-'}  {each.position}  {each.became}" for each in story.arrivals.found)
        yield f"arrivals searched: {story.arrivals.searched}"
    if story.deliveries is not None:
        for each in story.deliveries.found:
            ended = f" at {each.ended_at}" if each.ended_at else f" since {each.taken_at}"
            failed = counted(each.attempts, "failed attempt")
            yield f"delivery: {each.receiver}  {each.status}{ended}  {each.notification_id}  {failed}"
        yield f"deliveries searched: {story.deliveries.searched}"


def _published_lines(story: UnitStory) -> Iterator[str]:
    for gap in story.incomplete:
        more = f" ({counted(gap.notifications, 'notification')})" if gap.notifications > 1 else ""
        yield f"sent incomplete: {'' if gap.at is None else f'at {gap.at}, '}without {gap.missing}{more}"
    for each in story.left.found:
        marks = f"  {', '.join(each.marks)}" if each.marks else ""
        what = f"{each.event}  {each.flow}  {each.status or '-'}" if each.event else each.notification_id
        yield f"sent: {each.created_at or '-'}  {what}  {each.position}{marks}"
    yield f"notifications searched: {story.left.searched}"


class Telling(msgspec.Struct, frozen=True):
    """The steps of the story, and the envelopes in the order in which they were handled."""

    steps: tuple[Step, ...]
    handled: tuple[Event, ...]


class Output(msgspec.Struct, frozen=True):
    """A unit's notifications in the order of the output: ids and records."""

    ids: tuple[str, ...]
    lines: tuple[Line, ...]


class _Listener:
    """A handler that only records which envelopes were handled."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def handle(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        del data, marks, now
        self.heard.append(envelope)
        return Handled()


def tell(arrivals: Sequence[Event], configuration: Configuration) -> Telling:
    """Return the decisions of the unit's own pure code about these arrivals, one after the other.

    When they came is not known: no deadline passes between them. With WINDOW all leave at the end, in order.
    """
    strategy, listener = make_strategy_of(configuration), _Listener()
    data = make_data_handler_of(configuration)
    context = TurnContext(strategy, listener, data, configuration.resequencer, Random(0))  # noqa: S311 - nothing is retried here.
    unit = context.new_unit("")
    steps: list[Step] = []
    now = max([each.time or 0 for each in arrivals], default=0)  # Of no event the time is beyond its arrival.
    for envelope in arrivals:
        before = len(listener.heard)
        turn = take_turn(unit, (envelope,), (), now, context)
        steps.append(_step(StepKind.ARRIVED, envelope))
        steps += _consequences(envelope, turn, listener.heard[before:])
    if context.releases_by_wait:
        before = len(listener.heard)
        take_turn(unit, (), (Wake.DEADLINE,), now + context.settings.deadline_ms, context)
        steps += [_step(StepKind.HANDLED, each) for each in listener.heard[before:]]
    return Telling(tuple(steps), tuple(listener.heard))


def read_output(unit: str, notifications: Path) -> Output:
    """Read this unit's notifications from the output file and its rotated files."""
    lines = tuple(_lines_of(unit, notifications))
    return Output(tuple(own_texts(each.headers)[NOTIFICATION_ID] for each in lines), lines)


def agrees(telling: Telling, output: Output) -> bool:
    """Return whether the service sent, in this order, the notifications of the envelopes that the story handled.

    Events without a setting cause no notification.
    """
    decided = [
        notification_id(event.unit, event.event_id, index) for event in telling.handled for index, _ in enumerate(_names(event))
    ]
    published = set(output.ids)
    return list(output.ids) == [each for each in decided if each in published]


def _consequences(envelope: Event, turn: Turn, handled: Sequence[Event]) -> Iterator[Step]:
    if turn.duplicates:
        yield _step(StepKind.DUPLICATE, envelope, "dropped")
    elif turn.added:
        waits = turn.waits
        yield _step(StepKind.STASHED, envelope, f"waits for {waits.waits_for}" if waits else "")
    for each in handled:
        yield _step(StepKind.HANDLED, each)


def _step(kind: StepKind, event: Event, note: str = "") -> Step:
    return Step(kind, event.sequence or 0, event.flow, ", ".join(_names(event)), note)


def _names(event: Event) -> tuple[str, ...]:
    """Return what the event says that happened: its process objects, in other formats its type."""
    if isinstance(event, DataEnvelope):
        return tuple(each.event_name or "" for each in event.process_objects)
    return event.parts or ("",)


def _lines_of(unit: str, notifications: Path) -> Iterator[Line]:
    name = unit.encode()
    for _, found in scan_output(notifications, SystemFiles()):
        line = decode_line(found.content) if name in found.content else None
        if isinstance(line, Line) and find_unit(line.key, own_texts(line.headers)) == unit:
            yield line


_GROUPS_SECONDS = 2.0


def find_anything(arguments: Namespace) -> ExitCode:
    """Print what was found and what was searched. Exit code 0 if something was found; 4 if a problem may have hidden it."""
    configuration = load_for(arguments)
    sources = console_sources(configuration)

    def note() -> None:
        note_from_shell(configuration, "find.end-to-end-id", text=arguments.text)

    with (
        nullcontext() if sources.open_view is None else closing(sources.open_view()) as view,
        nullcontext() if sources.open_ledger is None else closing(sources.open_ledger()) as ledger,
    ):
        reach = Reach(sources, lambda: nullcontext(view), _groups_of(configuration), ledger, note)
        answer = find(reach, arguments.text, is_all=arguments.all)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        sys.stdout.write("".join(printable(line) + "\n" for line in _found_lines(answer)))
    if answer.found:
        return ExitCode.DONE
    say(f"nothing was found of {arguments.text} with the configuration {arguments.config}")
    return ExitCode.OUT_OF_REACH if answer.problems and sources.open_view is not None else ExitCode.FAILED


def add_find_arguments(parser: ArgumentParser) -> None:
    what = "the whole id: of a unit of work, a message or its group, a notification, a dead letter (TOPIC-PARTITION#NUMBER), a "
    parser.add_argument(
        "text", metavar="TEXT", help=f"{what}payment (EndToEndId), or the position of a record (TOPIC-PARTITION@OFFSET)"
    )
    what = "search everywhere, all dead letters and orders, for up to 20 seconds each, also if something was found"
    parser.add_argument("--all", action="store_true", help=what)


def _found_lines(answer: FindAnswer) -> list[str]:
    found = [f"{each.kind} {each.id}: {each.text}; {each.command}" for each in answer.found]
    meaning = [f"can mean: {each}" for each in answer.meaning if not answer.found]
    problems = [f"problem: {each}" for each in answer.problems]
    return [*found, *problems, *meaning, *(f"searched for {each.what}: {each.text}" for each in answer.searched)]


def _groups_of(configuration: Configuration) -> Callable[[str], GroupsFound]:
    def in_files(text: str) -> GroupsFound:
        found: list[GroupView] = []
        until = monotonic() + _GROUPS_SECONDS
        try:
            with (
                TemporaryDirectory(prefix="groups-") as directory,
                closing(open_view(configuration, payments_store(configuration), Path(directory))) as view,
            ):
                for key, head in view.heads():
                    group = find_described(key, head)
                    found += [group] if group is not None and text in (key, group.message_id) else []
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
    meaning = "It is the id of a message: `resequencer groups show MESSAGE-ID` or the console finds it, this search does not."
    return lambda _: GroupsFound((), f"not searched: {why}console has an index of them", meaning)
