"""`resequencer verify`: compares the output with what the simulator expected, by the configured strategy."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from guardian.ports import Channel
from notification_service.commands.command import say
from notification_service.commands.simulate import expected_file, new_retry, pause, simulated_events, steady_ms
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Notifications, TransportType
from notification_service.configuration.transports import jms_sink_settings, kafka_settings, sinks_of, xms_sink_settings
from notification_service.connectors.region_port import Repeats
from notification_service.events.pass_through import PASS_THROUGH, PAYMENTS
from notification_service.simulator.arguments import Judge, add_expected, seconds, some_seconds
from notification_service.simulator.generate.plan import Events
from notification_service.simulator.verify.following import Compared, FollowedOrders, Following, Look, Watch, keep_watch
from notification_service.simulator.verify.group_check import GroupRules, GroupsCheck
from notification_service.simulator.verify.operator_orders import OrdersLog
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Verdict, render_json, render_text
from notification_service.simulator.verify.verification import GroupFiles, verify_files
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.aggregation import payments_store
from notification_service.wiring.composition import handler_settings, make_order_book, make_order_source
from notification_service.wiring.console import console_sources
from notification_service.wiring.regions import make_topic_export
from resequencer.errors import ConfigurationError
from resequencer.printable import counted

_MINUTE_MS = 60_000
_OF_GROUPS = ("completions", "dead-letters")
"""The output of the groups, by the names of its files."""

_Answer = TypeVar("_Answer")


class _Asking(Protocol):
    def __call__(self, call: Callable[[], _Answer], /) -> _Answer: ...


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of a comparison. Strategy and output come from the configuration unless they are given."""
    parser.add_argument("--strategy", help="expect the order of this strategy (default: the configured one)")
    parser.add_argument(
        "--sink",
        choices=[each.value for each in TransportType],
        help="compare the notifications of this sink (default: the first one; dead letters are always those of the first)",
    )
    add_expected(parser)
    following = parser.add_argument_group("while the service runs")
    following.add_argument(
        "--follow",
        action="store_true",
        help="follow the running service; end with 0 when everything expected has arrived, with 1 at a deviation",
    )
    following.add_argument(
        "--interval", type=some_seconds, default=2_000, metavar="SECONDS", help="seconds between progress lines (default: 2)"
    )
    following.add_argument(
        "--give-up-after",
        type=seconds,
        metavar="SECONDS",
        help="end with 1 when nothing has arrived for this long (default: the deadline, a quarter of it, and a minute; "
        "choose more than the longest pause of the simulation)",
    )


def verify(arguments: Namespace) -> ExitCode:
    """Compare output and expectations. Exit code 0 only if every promise was kept."""
    configuration = load(arguments.config, arguments.overrides)
    expected = expected_file(arguments.expected, configuration)
    sink = _sink(configuration, arguments.sink)
    if arguments.follow:
        try:
            verdict = _follow(arguments, configuration, expected, sink)
        except KeyboardInterrupt:
            say("interrupted before everything had arrived")
            return ExitCode.FAILED
    else:
        verdict = verify_output(configuration, expected, arguments.strategy, sink=sink)
    sys.stdout.write((render_json(verdict) if arguments.json else render_text(verdict)) + "\n")
    return ExitCode.DONE if verdict.is_good else ExitCode.FAILED


def verify_output(
    configuration: Configuration,
    expected: Path,
    strategy: str | None = None,
    check: GroupsCheck | None = None,
    sink: TransportType | None = None,
) -> Verdict:
    """Return the comparison of the output with these expectations.

    `check` is what compares the groups, if there are any. `sink` is whose notifications are compared, by default the first one.
    """
    with _output(configuration, sink) as output:
        output.catch_up()
        files = _compared(output, expected)
        outcomes, read_log = _orders(configuration, output) or (None, None)
        groups = _groups(output, check or make_groups_check(configuration, strategy))
        return verify_files(_rules(configuration, strategy), *files, outcomes, read_log, groups)


def make_groups_check(configuration: Configuration, strategy: str | None = None) -> GroupsCheck | None:
    """Return what compares the group reports; None without aggregation. `strategy` is the configured one by default."""
    aggregation = configuration.aggregation
    if not configuration.counts_payments:
        return None
    return GroupsCheck(GroupRules(frozenset(aggregation.final_statuses), strategy or configuration.resequencer.strategy))


def _sink(configuration: Configuration, named: str | None) -> TransportType:
    """Return the sink to compare.

    Raises:
        ConfigurationError: The service has no such sink.
    """
    sinks = sinks_of(configuration)
    if named is None:
        return sinks[0]
    if named not in sinks:
        raise ConfigurationError("--sink", f"is {named}, which is no sink of the service: name one of {', '.join(sinks)}")
    return TransportType(named)


def _follow(arguments: Namespace, configuration: Configuration, expected: Path, sink: TransportType) -> Verdict:
    longest_wait_ms = arguments.give_up_after
    if longest_wait_ms is None:
        settings = configuration.resequencer
        longest_wait_ms = Judge(settings.longest_deadline_ms, configuration.ingress.max_record_bytes).late_after_ms + _MINUTE_MS

    def say(look: Look) -> None:
        sys.stdout.write(_look_text(look, as_json=arguments.json))
        sys.stdout.flush()

    waiting = _Waiting()
    with (
        _output(configuration, sink, waiting.until_answered) as output,
        closing(
            Following(
                _rules(configuration, arguments.strategy),
                _compared(output, expected),
                output.catch_up,
                _orders(configuration, output, waiting.until_answered),
                _groups(output, make_groups_check(configuration, arguments.strategy)),
            )
        ) as following,
    ):
        return keep_watch(following, Watch(arguments.interval, longest_wait_ms), waiting.steady_ms, pause, say)


def _at_once(call: Callable[[], _Answer]) -> _Answer:
    return call()


class _Waiting:
    """Waits for the brokers, reports it, and does not count that time as time without progress."""

    def __init__(self) -> None:
        self._retry = new_retry()
        self._waited_ms = 0

    def until_answered(self, call: Callable[[], _Answer]) -> _Answer:
        began_ms = steady_ms()
        try:
            return self._retry.until_answered("output", call)
        finally:
            self._waited_ms += steady_ms() - began_ms

    def steady_ms(self) -> int:
        return steady_ms() - self._waited_ms


class _Output(NamedTuple):
    """The directories of the first sink's output and of the notifications. Of topics and queues they are copies, which `catch_up`
    brings up to date.

    `groups` are the files of the facts, of the group reports and of the groups' dead letters.
    """

    directory: Path
    notifications: Path
    groups: tuple[Path, Path, Path]
    catch_up: Callable[[], None]


@contextmanager
def _output(configuration: Configuration, sink: TransportType | None = None, answered: _Asking = _at_once) -> Iterator[_Output]:
    """Open the output, with the notifications of this sink. `answered` repeats each call that asks the brokers."""
    first = configuration.notification.transport
    with _output_of(configuration, first, answered) as output:
        if sink in (None, first):
            yield output
            return
        with _output_of(configuration, sink, answered) as other:

            def catch_up() -> None:
                output.catch_up()
                other.catch_up()

            yield output._replace(notifications=other.notifications, catch_up=catch_up)


@contextmanager
def _output_of(configuration: Configuration, sink: TransportType, answered: _Asking) -> Iterator[_Output]:
    """Open the output of one sink."""
    notification, payments = configuration.notification, payments_store(configuration)
    if sink is TransportType.FILE:
        reports, dead_letters = (payments.directory / f"{name}.jsonl" for name in _OF_GROUPS)
        groups = payments.in_directory / "partition-0.jsonl", reports, dead_letters
        directory = notification.output_directory
        yield _Output(directory, directory, groups, lambda: None)
        return
    if sink in (TransportType.JMS, TransportType.XMS):
        with _queues(configuration, sink, answered) as queues:
            yield queues
        return
    if sink is TransportType.MQTT:
        with _subscribed(configuration, answered) as subscribed:
            yield subscribed
        return
    from notification_service.connectors.kafka.topic_reader import TopicExport

    topics = (payments.commands, payments.completions, payments.dead_letters)
    names = ("facts.jsonl", *(f"group-{name}.jsonl" for name in _OF_GROUPS))
    more = dict(zip(topics, names, strict=True)) if configuration.counts_payments else {}
    with (
        TemporaryDirectory(prefix="resequencer-verify-") as temporary,
        closing(answered(lambda: TopicExport(kafka_settings(configuration), Path(temporary), more))) as export,
    ):
        directory = Path(temporary)
        facts, reports, dead_letters = (directory / name for name in names)
        yield _Output(directory, directory, (facts, reports, dead_letters), lambda: answered(export.catch_up))


@contextmanager
def _queues(configuration: Configuration, sink: TransportType, answered: _Asking) -> Iterator[_Output]:
    """Open a copy of the output queues. There are no groups: their facts are in no queue."""
    from notification_service.connectors.jms.queue_export import QueueExport  # Imported here: its client may not be installed.

    with TemporaryDirectory(prefix="resequencer-verify-") as temporary:
        directory = Path(temporary)
        repeats = Repeats() if sink is TransportType.XMS else None
        settings = jms_sink_settings(configuration) if repeats is None else xms_sink_settings(configuration)
        with closing(QueueExport(settings, directory, repeats)) as export:
            none = directory / "none.jsonl"
            yield _Output(directory, directory, (none, none, none), lambda: answered(export.catch_up))
        _tell(repeats)


@contextmanager
def _subscribed(configuration: Configuration, answered: _Asking) -> Iterator[_Output]:
    """Open the files of what came to the topics of the sink mqtt. There are no groups."""
    with closing(make_topic_export(configuration)) as export:
        directory = configuration.notification.run_directory / "verify-mqtt"
        none = directory / "none.jsonl"
        yield _Output(directory, directory, (none, none, none), lambda: answered(export.catch_up))
    _tell(export.repeats)


def _tell(repeats: Repeats | None) -> None:
    if repeats is not None and repeats.count:
        say(f"{counted(repeats.count, 'message')} came again, as the sink may do")


def _compared(output: _Output, expected: Path) -> Compared:
    return Compared(expected, output.notifications / "notifications.jsonl", output.directory / "dead-letters.jsonl")


def _orders(configuration: Configuration, output: _Output, answered: _Asking = _at_once) -> FollowedOrders | None:
    if not configuration.orders.is_enabled:
        return None
    return FollowedOrders(
        output.directory / f"{Channel.ORDER_OUTCOMES}.jsonl", lambda: answered(lambda: _read_log(configuration))
    )


def _groups(output: _Output, check: GroupsCheck | None) -> GroupFiles | None:
    return None if check is None else GroupFiles(output.groups, check)


def _read_log(configuration: Configuration) -> OrdersLog:
    """Return the orders of all partitions of the input."""
    now = SystemClock().now()
    partitions = console_sources(configuration).find_partitions()
    with closing(make_order_book(configuration)) as book, closing(make_order_source(configuration)) as source:
        return OrdersLog(
            book.orders(partitions, 0),
            {each: source.bounds(each).start for each in partitions},
            [(each, record) for each in partitions for record in source.find_without_outcome(each)],
            now,
            configuration.orders.backlog_wait_ms,
        )


def refuse_foreign_handler(configuration: Configuration) -> None:
    """Raise ConfigurationError if the simulator cannot expect what the handler makes, or one of data."""
    handler = configuration.notification.handler
    is_shop = simulated_events(configuration) is Events.SHOP
    if handler != (PASS_THROUGH if is_shop else PAYMENTS):
        whose = "does not fit what simulate writes" if handler in (PAYMENTS, PASS_THROUGH) else "is a handler of your own"
        problem = (
            f"{handler!r} {whose}, so the expected notifications are unknown; verify needs "
            f"{PASS_THROUGH if is_shop else 'null'}. To check ids, order and marks, use `resequencer audit`"
        )
        raise ConfigurationError(path_of(Notifications, "handler"), problem)
    own = handler_settings(configuration).data_handler
    if own is not None:
        problem = f"{own!r} is your own, so what notifications repeat is unknown; verify needs null. Use `resequencer audit`"
        raise ConfigurationError(path_of(Notifications, "data_handler"), problem)


def _rules(configuration: Configuration, strategy: str | None) -> Rules:
    refuse_foreign_handler(configuration)
    resequencer = configuration.resequencer
    return Rules(
        strategy or resequencer.strategy,
        resequencer.custom_data_keys,
        resequencer.pds_data_keys,
        configuration.notification.target_type,
        configuration.resequencer.shortest_deadline_ms,
        resequencer.required_parts,
        resequencer.order_by,
    )


def _look_text(look: Look, *, as_json: bool) -> str:
    if as_json:
        return msgspec.json.encode(look).decode() + "\n"
    at_least = "" if look.has_read_all else "at least "
    return (
        f"{look.notifications} notifications compared, {look.units} units complete, {at_least}{look.outstanding} outstanding; "
        f"{look.dead_letters} dead letters, {look.outstanding_dead_letters} outstanding; {look.deviations} deviations"
        + (f"; {counted(look.outstanding_orders, 'order')} without an outcome" if look.outstanding_orders else "")
        + (f"; {look.outstanding_groups} facts and group reports outstanding" if look.outstanding_groups else "")
        + "\n"
    )
