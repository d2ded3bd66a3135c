"""`resequencer units release | skip | hold | …`, `resequencer partitions …` and `resequencer orders`: gives and lists orders."""

import secrets
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from time import monotonic, sleep

from guardian.ports import OrderBook
from notification_service.commands.command import Subcommand, add_subcommands, instant, load_for, read_partition, say, write_row
from notification_service.configuration.configuration import Configuration
from notification_service.console.find_unit import Viewing, known_partitions, note_waits
from notification_service.console.orders import NotGiven, ToldOrder, Wish, give, list_orders, make_order, order_answer
from notification_service.console.sources import Sources
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.composition import make_order_book
from notification_service.wiring.console import console_sources
from notification_service.wiring.dead_letter_stores import sign
from resequencer.clock import Instant, instant_text
from resequencer.keys.value_types import Duration, Mismatch
from resequencer.order import Order, OrderKind
from resequencer.printable import counted, printable
from resequencer.record import Partition
from resequencer.storage_port import WaitKind
from storage.view_port import StorageView, UnitView

_HOLD = Duration("1s", "24h")
_SINCE = Duration("1s", "3650d")
_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.3
_DAY_MS = 86_400_000
_SKEW_MS = 600_000
"""The owner's clock may be behind ours by so much: outcomes have its instants."""

UNIT_ORDERS = (
    OrderKind.RELEASE,
    OrderKind.SKIP,
    OrderKind.HOLD,
    OrderKind.RESUME,
    OrderKind.EXTEND,
    OrderKind.RETRY,
    OrderKind.DEAD_LETTER,
)

_SUMMARIES = {
    OrderKind.RELEASE: "order that the waiting envelopes of a unit are sent now, as at its deadline",
    OrderKind.SKIP: "order that a unit no longer waits for its lowest missing number",
    OrderKind.HOLD: "order that nothing of a unit is handled for a time",
    OrderKind.RESUME: "order that a held unit continues",
    OrderKind.EXTEND: "order another deadline for a unit",
    OrderKind.RETRY: "order that the attempt that is due later is made now",
    OrderKind.DEAD_LETTER: "order that a stashed envelope becomes a dead letter",
}


def unit_subcommands() -> tuple[Subcommand, ...]:
    """Return the subcommands of `units` that give orders."""
    return tuple(Subcommand(each.value, _SUMMARIES[each], _adding(each)) for each in UNIT_ORDERS)


def order_for_unit(arguments: Namespace) -> ExitCode:
    """Give the order of this subcommand of `units`, and wait for its outcome."""
    configuration = load_for(arguments)
    sources = console_sources(configuration)
    if sources.open_view is None:
        raise NotGiven("with storage none only pause and resume of a partition are possible: resequencer partitions pause")
    kind = OrderKind(arguments.subcommand)
    wish = Wish(
        kind,
        arguments.because,
        for_ms=getattr(arguments, "for_ms", None),
        until=getattr(arguments, "until", None),
        position=getattr(arguments, "position", None),
        despite_backlog=getattr(arguments, "despite_backlog", False),
    )
    with closing(make_order_book(configuration)) as book, closing(sources.open_view()) as view:
        partition, found = _find_unit(sources, view, arguments.unit, arguments.partition)
        order = make_order(wish, sign().by, sources.clock.now(), secrets.token_hex(16), arguments.unit, found.waits)

        def is_held() -> bool:
            unit = view.find_unit(partition, arguments.unit)
            return unit is not None and unit.waits is not None and unit.waits.kind is WaitKind.HELD

        ended = _give(arguments, configuration, book, (partition, order), is_held if kind is OrderKind.HOLD else None)
        if ended is ExitCode.OUT_OF_REACH:
            waits = [each.text for each in _listed(sources, book, nullcontext(view), order.at) if each.id == order.id]
            sys.stdout.writelines(f"it {printable(each)}\n" for each in waits if each)
        return ended


def partitions(arguments: Namespace) -> ExitCode:
    """Run `resequencer partitions list | pause | resume`."""
    configuration = load_for(arguments)
    sources = console_sources(configuration)
    if arguments.subcommand == "list":
        return _list_partitions(arguments, sources)
    known, problems = known_partitions(sources, sources.find_report())
    named = Partition.find(arguments.partition)
    places = [each for each in known if each == named] or [each for each in known if each.topic == arguments.partition]
    if not places:
        known_text = "; ".join(problems) or f"known are {', '.join(map(str, known)) or 'none'}"
        raise NotGiven(f"there is no partition {arguments.partition}: {known_text}")
    kind = OrderKind.PAUSE if arguments.subcommand == "pause" else OrderKind.RESUME_PARTITION
    until, codes = monotonic() + arguments.wait, list[ExitCode]()
    with closing(make_order_book(configuration)) as book:
        for each in places:
            order = make_order(Wish(kind, arguments.because), sign().by, sources.clock.now(), secrets.token_hex(16), None, None)
            arguments.wait = max(0.0, until - monotonic())
            codes.append(_give(arguments, configuration, book, (each, order), None))
    return next((each for each in (ExitCode.FAILED, ExitCode.OUT_OF_REACH) if each in codes), ExitCode.DONE)


def add_partitions_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `partitions`."""
    add_subcommands(
        parser,
        Subcommand("list", "one line per partition: position, lag, what holds it back, whether it is paused"),
        Subcommand("pause", "order that the input of a partition is not read", _add_partition),
        Subcommand("resume", "order that the input of a paused partition is read again", _add_partition),
        is_required=True,
    )


def orders(arguments: Namespace) -> ExitCode:
    """Run `resequencer orders`: one line per order of the last time, the newest first."""
    configuration = load_for(arguments)
    sources = console_sources(configuration)
    with closing(make_order_book(configuration)) as book:
        since = sources.clock.now() - arguments.since
        listed = _listed(sources, book, _viewing(sources), since)
    for each in listed:
        if arguments.unit is None or each.unit == arguments.unit:
            write_row(arguments, each, order_line(each))
    say(f"{counted(len(listed), 'order')} since {instant_text(since)}")
    return ExitCode.DONE


def add_orders_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `orders`."""
    parser.add_argument("--since", type=duration(_SINCE), default=_DAY_MS, metavar="DURATION", help="how far back; default: 1d")
    parser.add_argument("--unit", metavar="ID", help="only those of this unit")


def _give(
    arguments: Namespace,
    configuration: Configuration,
    book: OrderBook,
    wanted: tuple[Partition, Order],
    is_in_force: Callable[[], bool] | None,
) -> ExitCode:
    """Append the order and wait for its outcome. `is_in_force` tells whether an order without an outcome took effect."""
    partition, order = wanted
    given = give(book, partition, order, configuration.http.approval)
    if given.stage is not None:
        sys.stdout.write(f"proposed as {order.id}: another person has to approve it in the console (http.approval)\n")
        return ExitCode.DONE
    say(f"order {order.id} is given to the owner of {partition}; waiting for its outcome")
    until = monotonic() + arguments.wait
    while monotonic() < until:
        for each in book.outcomes([partition], order.at - _SKEW_MS):
            if each.outcome.order is not None and each.outcome.order.id == order.id:
                sys.stdout.write(printable(f"{each.outcome.result.value}: {each.outcome.text}") + "\n")
                return ExitCode.FAILED if each.outcome.result.is_refusal else ExitCode.DONE
        if is_in_force is not None and is_in_force():
            sys.stdout.write("held; the outcome follows when the hold ends\n")
            return ExitCode.DONE
        sleep(_LOOK_SECONDS)
    sys.stdout.write("no outcome yet: the order stands, and is executed when the owner of the partition reads it\n")
    return ExitCode.OUT_OF_REACH


def _find_unit(sources: Sources, view: StorageView, unit: str, only: Partition | None) -> tuple[Partition, UnitView]:
    """Return where the unit is.

    Raises:
        NotGiven: It is in no partition, or in several.
    """
    known, problems = ((only,), ()) if only is not None else known_partitions(sources, sources.find_report())
    found = [(each, here) for each in known if (here := view.find_unit(each, unit)) is not None]
    waiting = [each for each in found if each[1].waits is not None] or found
    if not waiting:
        raise NotGiven("; ".join((f"the storage has no unit {printable(unit)}", *problems)))
    if len(waiting) > 1:
        raise NotGiven(f"unit {printable(unit)} is in {' and in '.join(str(each) for each, _ in waiting)}; say --partition")
    return waiting[0]


@contextmanager
def _viewing(sources: Sources) -> Iterator[StorageView | None]:
    if sources.open_view is None:
        yield None
        return
    with closing(sources.open_view()) as view:
        yield view


def _listed(sources: Sources, book: OrderBook, viewing: Viewing, since: Instant) -> list[ToldOrder]:
    known, problems = known_partitions(sources, sources.find_report())
    for problem in problems:
        say(problem)
    listed = list_orders(book.orders(known, since), book.outcomes(known, since), sources.clock.now())
    return [order_answer(each) for each in note_waits(sources, viewing, listed)]


def order_line(each: ToldOrder) -> str:
    """The order and what came of it, on one line for people."""
    approved = "" if each.approved_by is None else f", approved by {each.approved_by}"
    text = "" if each.text is None else f": {each.text}"
    ended = "" if each.ended_at is None else f" at {each.ended_at}"
    what = f"{each.order.value} {each.unit or each.partition}"
    return f"{each.at}  {what}  by {each.by}{approved}, because {each.because}  {each.result_or_state}{ended}{text}  {each.id}"


def _list_partitions(arguments: Namespace, sources: Sources) -> ExitCode:
    report = sources.find_report()
    found = () if report is None else report.whole.partitions
    for each in found:
        lag = ", lag unknown" if each.lag is None else f", {each.lag:,} {sources.lag_unit} behind"
        held = "" if each.held_by is None else f", held back by {each.held_by} since {each.held_since}"
        paused = "" if each.paused_by is None else f", paused by {each.paused_by} since {each.paused_since}"
        write_row(arguments, each, f"{each.partition}  read to {each.read_to}{lag}{held}{paused}  (worker {each.slot})")
    say(f"{counted(len(found), 'partition')} by the workers' last reports")
    return ExitCode.DONE


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentTypeError(f"expected the offset alone, such as 17 of ORDERS-0@17, not {text!r}")
    return int(text)


def _adding(kind: OrderKind) -> Callable[[ArgumentParser], None]:
    def add(parser: ArgumentParser) -> None:
        parser.add_argument("unit", metavar="ID", help="the unitOfWorkId")
        if kind is OrderKind.DEAD_LETTER:
            parser.add_argument("position", type=_offset, metavar="OFFSET", help="its record's offset, as `units show` has it")
        if kind is OrderKind.HOLD:
            parser.add_argument(
                "--for", dest="for_ms", type=duration(_HOLD), required=True, metavar="DURATION", help="up to 24h: 4h"
            )
        if kind is OrderKind.EXTEND:
            parser.add_argument("--until", type=instant, required=True, metavar="INSTANT", help="2026-03-28T23:33Z")
        if kind in (OrderKind.RELEASE, OrderKind.SKIP):
            parser.add_argument("--despite-backlog", action="store_true", help="do not wait until unread records are read")
        parser.add_argument("--partition", type=read_partition, metavar="TOPIC-N", help="if the unit is in several partitions")
        _add_because(parser)

    return add


def _add_partition(parser: ArgumentParser) -> None:
    which = "as `partitions list` names it, or TOPIC: each partition that it has at this moment"
    parser.add_argument("partition", metavar="TOPIC-N", help=which)
    _add_because(parser)


def _add_because(parser: ArgumentParser) -> None:
    parser.add_argument("--because", required=True, type=_reason, metavar="TEXT", help="the reason; it is stored with your name")
    parser.add_argument(
        "--wait", type=float, default=_WAIT_SECONDS, metavar="SECONDS", help="how long to wait for the outcome; default: 30"
    )


def _reason(text: str) -> str:
    if not text.strip() or len(text) > 1_000:
        raise ArgumentTypeError("give a reason of 1 to 1000 characters")
    return text


def duration(kind: Duration) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return int(kind.read(text) or 0)
        except Mismatch as error:
            raise ArgumentTypeError(f"expected {kind.expects}") from error

    return read
