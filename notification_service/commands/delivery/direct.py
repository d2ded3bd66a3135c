"""`resequencer delivery blocked | skip | skip-all | block`: what is blocked in topics, and what an operator orders about it."""

import secrets
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

import msgspec

from notification_service.commands.command import Subcommand
from notification_service.configuration.configuration import Configuration
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, DirectResult
from notification_service.delivery.errors import OrderRefused
from notification_service.status.delivery import BlockedStatus
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import sign
from notification_service.wiring.delivery.direct import order_delivery
from notification_service.wiring.side_reports import find_delivery_of
from resequencer.printable import counted, printable
from resequencer.record import Origin, Partition

_WAIT_SECONDS = 30.0
NAMES = frozenset({"blocked", *(each.value for each in DirectOrderKind)})


class _Blocked(BlockedStatus, frozen=True, kw_only=True):
    """A line of the list. `lies_in` is the partition that the record was read from: the source's, or a retry topic's."""

    receiver: str
    lies_in: str

    @property
    def is_moved(self) -> bool:
        """Whether it blocks nothing: it has left the source, and ends by itself."""
        origin = Origin.find(self.position)
        return origin is None or str(origin.partition) != self.lies_in


def direct_delivery(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """Run one of the subcommands."""
    if arguments.subcommand == "blocked":
        return _blocked(arguments, configuration)
    return _order(arguments, configuration, DirectOrderKind(arguments.subcommand))


def direct_subcommands() -> tuple[Subcommand, ...]:
    """Return the subcommands of `delivery` for receivers that are delivered to straight from topics."""
    return (
        Subcommand("blocked", "list the records that are blocked in topics, as the running service reports them", _add_blocked),
        Subcommand("skip", "order that a blocked record becomes a dead letter, so that its key goes on", _add_skip),
        Subcommand("skip-all", "order that all that fails in a partition becomes dead letters, until `block`", _add_partition),
        Subcommand("block", "order that what fails in a partition is tried again, as the policy says", _add_partition),
    )


def _blocked(arguments: Namespace, configuration: Configuration) -> ExitCode:
    service = find_service(configuration.notification.run_directory, SystemClock().now())
    found = find_delivery_of(configuration, service).direct
    total = listed = 0
    for receiver in found:
        if arguments.receiver not in (None, receiver.receiver):
            continue
        for partition in receiver.partitions:
            total += partition.blocked
            for each in partition.records:
                listed += 1
                told = _Blocked(**msgspec.structs.asdict(each), receiver=receiver.receiver, lies_in=partition.partition)
                sys.stdout.write(msgspec.json.encode(told).decode() + "\n" if arguments.json else printable(_line(told)) + "\n")
    if not total and not arguments.json and service.holder is not None:
        sys.stdout.write("nothing is blocked\n")
    of_all = "" if listed == total else f", the first {listed} are shown"
    running = "" if service.holder is not None else "; the service does not run"
    others = "; workers that `delivery run` has started tell only their logs"
    sys.stderr.write(f"resequencer: {counted(total, 'blocked record')}{of_all}{running}{others}\n")
    return ExitCode.DONE


def _line(each: _Blocked) -> str:
    place = f"  in {each.lies_in}, where it blocks nothing" if each.is_moved else ""
    tried = f"since {each.since}  {counted(each.attempts, 'attempt')}{place}"
    return f"{each.receiver}  {each.position}  {each.key}  {tried}  {each.error}"


def _order(arguments: Namespace, configuration: Configuration, kind: DirectOrderKind) -> ExitCode:
    """Give the order, and wait for its outcome.

    Raises:
        ReceiverUnknown: There is no such receiver.
        OrderRefused: There is no such partition, or its owner refuses the order.
    """
    partition, offset = arguments.place if kind is DirectOrderKind.SKIP else (arguments.place, None)
    by, at = sign()
    order = DirectOrder(id=secrets.token_hex(16), order=kind, by=by, because=arguments.because, at=at, offset=offset)
    outcome = order_delivery(configuration, arguments.receiver, partition, order, _WAIT_SECONDS)
    if outcome is None:
        told = f"no worker has executed it within {_WAIT_SECONDS:g} s; the next owner of {partition} will"
        sys.stderr.write(printable(f"resequencer: the order is given: {told}") + "\n")
        return ExitCode.DONE
    if outcome.result is DirectResult.REFUSED:
        raise OrderRefused(outcome.text)
    sys.stderr.write(printable(f"resequencer: {outcome.text}") + "\n")
    return ExitCode.DONE


def _add_blocked(parser: ArgumentParser) -> None:
    parser.add_argument("receiver", nargs="?", metavar="RECEIVER")


def _add_skip(parser: ArgumentParser) -> None:
    _add_order(parser)
    parser.add_argument("place", type=_origin, metavar="TOPIC-PARTITION@OFFSET", help="the record, as `blocked` lists it")


def _add_partition(parser: ArgumentParser) -> None:
    _add_order(parser)
    parser.add_argument("place", type=_partition, metavar="TOPIC-PARTITION")


def _add_order(parser: ArgumentParser) -> None:
    parser.add_argument("receiver", metavar="RECEIVER")
    parser.add_argument("--because", required=True, metavar="TEXT", help="why; it is kept with the order")


def _origin(text: str) -> Origin:
    found = Origin.find(text)
    if found is None:
        raise ArgumentTypeError(f"expected TOPIC-PARTITION@OFFSET, such as NOTIFICATIONS-0@17, not {text!r}")
    return found


def _partition(text: str) -> Partition:
    found = Partition.find(text)
    if found is None:
        raise ArgumentTypeError(f"expected TOPIC-PARTITION, such as NOTIFICATIONS-0, not {text!r}")
    return found
