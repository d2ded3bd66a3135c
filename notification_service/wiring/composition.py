"""Makes a worker's parts from a configuration."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import StringIO
from random import SystemRandom
from time import monotonic
from typing import Any, NamedTuple

from msgspec.structs import replace

from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff
from guardian.calls import Calls
from guardian.cycle import Cycle
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.ports import NoOrders, OrderBook, OrderSource, Transport
from guardian.positions import MAX_CHARACTERS
from guardian.region import RegionLimits
from guardian.resets import RegionCycles
from guardian.unit_registry import UnitRegistrySettings
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import ConfigurationRefused, path_of, settings_from
from notification_service.configuration.sections import (
    Acknowledge,
    Notifications,
    Orders,
    Resequencers,
    TransportType,
    Trigger,
)
from notification_service.configuration.storages import storage_kind
from notification_service.configuration.transports import file_settings, is_region, kafka_settings, max_of_interval
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.files.sink import FileTransport
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import Mapping
from notification_service.events.own_data import (
    DATA_HANDLER_KEY,
    LATEST_OBJECTS_NAME,
    NO_DATA_NAME,
    ForeignDataHandler,
    OpeningHandler,
    make_data_handler,
    opened,
)
from notification_service.events.pass_through import PASS_THROUGH, PAYMENTS, PassThrough
from notification_service.events.settings import (
    IPF,
    MAPPED,
    EventsSettings,
    decoding_settings,
    find_decoder,
    is_keyed_otherwise,
    stored_format,
    stored_mapping,
)
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.enrichment import Enrichment
from notification_service.payments.notification_settings import NotificationSettings, parse_notification_settings
from notification_service.payments.payment_data import LATEST_OBJECTS, PaymentData
from notification_service.payments.port import VersionedHandler
from notification_service.payments.settings import HandlerSettings, make_event_handler, make_handler
from notification_service.payments.strategies import STRATEGY_KEY, StrategySettings, make_strategy
from notification_service.supervision.stop_signal import Wait
from notification_service.supervision.system_clock import SystemClock, steady_clock
from notification_service.wiring.aggregation import find_unusable
from notification_service.wiring.call_runner import CallRunner, HandlingThreads
from notification_service.wiring.handlers import (
    EnrichedHandler,
    HandlingLog,
    UsersCalls,
    WatchedHandler,
    find_current,
    make_enriched_handler,
)
from notification_service.wiring.regions import find_unusable_clients, make_region_transport
from notification_service.wiring.working_directory import see_working_directory
from resequencer.errors import ConfigurationError
from resequencer.event import Decoder, Refusal
from resequencer.handler import DataHandler, Handler
from resequencer.in_flight import CallsInFlight, InFlight, Untracked
from resequencer.order import LONGEST_HOLD_MS, OrderKind
from resequencer.record import Record
from resequencer.strategies.port import Strategy
from resequencer.turn.turn import TurnContext
from resequencer.unit_codec import UnitCodec
from resequencer.users_code import FindWay, is_async, within_the_turn

_MIN_OUTPUT_BYTES = 16 * 1024 * 1024


class Parts(NamedTuple):
    """A worker's parts; the caller closes `servers`, `handler` and `users_calls`."""

    cycle: Cycle
    region: RegionCycles
    servers: Servers
    retry: RetryWithBackoff
    watched: WatchedHandler
    handler: EnrichedHandler
    users_calls: UsersCalls
    problem_log: LogRateLimit


def compose(
    configuration: Configuration,
    wait: Wait,
    is_stopping: Callable[[], bool],
    slot: int = 0,
    in_flight: CallsInFlight | None = None,
) -> Parts:
    """Make the worker of a slot. It reads only the settings or the lookups, and creates and takes over nothing yet.

    Envelopes are in `in_flight` while the handler or a user's own code has them.

    Raises:
        ConfigurationError: Something named in the configuration cannot be used.
    """
    resequencer, run_directory = configuration.resequencer, configuration.notification.run_directory
    clock = steady_clock(run_directory, f"worker-{slot}", configuration.clock_trusted_after_ms, keeps=True)
    in_flight = in_flight or Untracked()
    strategy, load = make_strategy_of(configuration, in_flight), partial(load_notification_settings, configuration)
    data_handler = make_data_handler_of(configuration, in_flight)

    threads = HandlingThreads(in_flight.beside.threads[: resequencer.handling_threads or None])
    users_calls = UsersCalls(threads, resequencer.handling_threads, resequencer.handling_concurrency)

    def make(known: NotificationSettings | Enrichment) -> VersionedHandler:
        made = _make_handler(configuration, known, users_calls.find_way)
        return OpeningHandler(made) if isinstance(data_handler, ForeignDataHandler) else made

    handler = make_enriched_handler(configuration, make, load)
    problem_log, timeout_ms = LogRateLimit(), resequencer.processing_timeout_ms
    handling_log = HandlingLog(problem_log, clock, timeout_ms, resequencer.max_attempts)
    watched = WatchedHandler(handler, in_flight, timeout_ms, monotonic, handling_log.note)
    decoder = _decoder(configuration, strategy, in_flight)
    events = stored_format(configuration.ingress.events, decoder)
    context = TurnContext(
        strategy,
        watched,
        data_handler,
        configuration.resequencer,
        SystemRandom(),
        handler,
        strategy_key=STRATEGY_KEY,
        events=events,
    )
    storage = storage_kind(configuration).make(configuration, _random_token)
    registry = UnitRegistrySettings(
        idle_timeout_ms=resequencer.idle_timeout_ms,
        stash_bytes=resequencer.stash_limit_bytes_per_worker,
        can_reload=storage.is_durable,
        unit_stash=resequencer.stash_limit,
        unit_bytes=resequencer.stash_bytes,
        budget_bytes=output_bytes(configuration.ingress.max_record_bytes),
        longest_pause_ms=context.settings.longest_pause_ms,
        longest_deadline_ms=max(context.settings.longest_deadline_ms, LONGEST_HOLD_MS),
    )
    transport, calls = _make_transport(configuration, wait, slot), None
    if handler.call is not None:
        runner = CallRunner(handler.call, in_flight, threads, transport.wake)
        calls = Calls(runner, users_calls.limit, timeout_ms, monotonic, handling_log.note_call)
    gateway = ActorGateway(context, decoder.decode, registry, calls)
    servers = Servers(transport, storage, gateway, make_order_source(configuration))
    retry = RetryWithBackoff(BackoffSettings(), wait, is_stopping)
    tools = Tools(decoder, clock, retry, _random_token, problem_log)
    settings = CycleSettings(
        strategy.name,
        max_of_interval(configuration),
        acknowledge_handled=_waits_for_handled(configuration),
        done_characters=MAX_CHARACTERS if configuration.ingress.transport is TransportType.KAFKA else None,
        retention_ms=resequencer.retention_ms,
        approval=frozenset(each for each in OrderKind if each in configuration.http.approval),
        backlog_wait_ms=configuration.orders.backlog_wait_ms,
        # A queue hands out only a window of messages that are not acknowledged.
        acknowledge_every_ms=0 if configuration.ingress.transport is TransportType.JMS else resequencer.acknowledge_every_ms,
        region=_region_limits(configuration),
        strategy_key=STRATEGY_KEY,
        events=events,
        mapping=stored_mapping(configuration.ingress.events),
        replaced_events=configuration.ingress.events.replaces,
        events_key=path_of(EventsSettings, "format"),
        watches_keys=is_keyed_otherwise(configuration.ingress.events),
    )
    if is_region(configuration):
        takes_whole_batches = configuration.region.trigger is Trigger.OPERATOR_DRIVEN
        settings = replace(settings, idle_ms=configuration.region.period_ms, takes_whole_batches=takes_whole_batches)
    cycle = Cycle(servers, tools, settings)
    cycles = RegionCycles(cycle, servers, tools, wait, configuration.ingress.transport.value)
    return Parts(cycle, cycles, servers, retry, watched, handler, users_calls, problem_log)


def refuse_unusable(configuration: Configuration) -> Sequence[str]:
    """Import what the configuration names, and read the table of settings or what the lookups say of themselves.

    Return what the user should know of how the handler is called, a sentence each.

    Raises:
        ConfigurationRefused: Lists everything that cannot be used.
    """
    problems: list[ConfigurationError] = []
    users: list[Callable[..., Any]] = []
    handler_of = partial(make_handler_of, find_way=users.append)
    for read in (make_decoder, handler_of, make_data_handler_of, storage_kind(configuration).name):
        try:
            read(configuration)
        except ConfigurationError as error:
            if str(error) not in map(str, problems):  # The decoder needs the strategy.
                problems.append(error)
    problems += find_unusable_clients(configuration)
    for name, _ in configuration.aggregation.stores if configuration.aggregation.is_enabled else ():
        problems += find_unusable(configuration, name)
    if problems:
        raise ConfigurationRefused(problems)
    return [*_doubtful_handling(configuration, *users[:1])]


def _doubtful_handling(configuration: Configuration, users: Callable[..., Any] | None = None) -> Iterator[str]:
    """Return what threads mean to the handler; `users` is what it calls of the user's code, None for nothing."""
    threads, path = configuration.resequencer.handling_threads, path_of(Resequencers, "handling_threads")
    if threads:
        if users is None:
            yield f"{path}: is {threads}, and has no effect: the service's own handler needs no threads"
        elif is_async(users):
            yield f"{path}: is {threads}, and has no effect: your handler or target type is async, and needs no threads"
    elif users is not None and not is_async(users):
        yield (
            f"{path}: is 0, and your handler or target type is synchronous: processing-timeout cannot end its calls, and all "
            "units of the worker wait for each. Define it with async def if it calls a server"
        )


def make_strategy_of(configuration: Configuration, in_flight: InFlight | None = None) -> Strategy:
    """Return the configured strategy; a user's own class is also looked for in the working directory."""
    see_working_directory()
    return make_strategy(settings_from(StrategySettings, configuration.resequencer), in_flight)


def make_codec(configuration: Configuration) -> UnitCodec:
    """Return what restores the workers' units, for other programs that show them.

    Raises:
        ConfigurationError: The strategy cannot be used.
    """
    strategy = make_strategy_of(configuration)
    decoder = _decoder(configuration, strategy)
    events = stored_format(configuration.ingress.events, decoder)
    return UnitCodec(strategy, decoder.decode, make_data_handler_of(configuration), STRATEGY_KEY, events)


def make_decoder(configuration: Configuration) -> Decoder:
    """The decoder of the workers, for other programs that read events.

    Raises:
        ConfigurationError: The strategy or the format cannot be used.
    """
    return _decoder(configuration, make_strategy_of(configuration))


def _decoder(configuration: Configuration, strategy: Strategy, in_flight: InFlight | None = None) -> Decoder:
    ingress = configuration.ingress
    settings = decoding_settings(strategy, configuration.resequencer.first_sequence, ingress.max_record_bytes)
    if ingress.events.format == IPF and settings.needs_time:
        problem = f"{strategy.name} orders by times, which data envelopes do not bring: choose another one"
        raise ConfigurationError(STRATEGY_KEY, problem)
    if ingress.events.format == MAPPED:
        _refuse_unmapped(strategy, ingress.events.mapped, needs_time=settings.needs_time)
    return find_decoder(ingress.events, settings, in_flight) or EnvelopeDecoder(settings)


def make_unit_finder(configuration: Configuration) -> Callable[[Record], str | None] | None:
    """Return how the unit of a record is found that need not be an event; None for IPF's, whose values name it."""
    see_working_directory()
    lenient = DecodingSettings(needs_sequence=False, max_value_bytes=configuration.ingress.max_record_bytes, first_sequence=0)
    decoder = find_decoder(configuration.ingress.events, lenient)
    if decoder is None:
        return None

    def find_unit(record: Record) -> str | None:
        decoded = decoder.decode(record)
        return None if isinstance(decoded, Refusal) else decoded.unit

    return find_unit


def make_data_handler_of(configuration: Configuration, in_flight: InFlight | None = None) -> DataHandler:
    """Return what keeps the units' data; a user's own class is also looked for in the working directory.

    Raises:
        ConfigurationError: The user's class cannot be used, or not with the handler of payments.
    """
    see_working_directory()
    by_default = LATEST_OBJECTS_NAME if configuration.ingress.events.format == IPF else NO_DATA_NAME
    name = configuration.notification.data_handler or by_default
    max_bytes = configuration.resequencer.stash_bytes
    made = make_data_handler(name, {LATEST_OBJECTS_NAME: LATEST_OBJECTS}, max_bytes, in_flight)
    if configuration.notification.handler == PAYMENTS and not isinstance(opened(made.empty), PaymentData):
        problem = f"{name!r} cannot be used: handler = {PAYMENTS} reports PaymentData, and its empty is none"
        raise ConfigurationError(DATA_HANDLER_KEY, problem)
    return made


def _refuse_unmapped(strategy: Strategy, mapping: Mapping, *, needs_time: bool) -> None:
    """Refuse a strategy, maybe a user's own, that needs what the mapping does not give: each event would be a dead letter."""
    for needs, field, what in ((strategy.needs_sequence, "sequence", "numbers"), (needs_time, "time", "times")):
        if needs and getattr(mapping, field) is None:
            problem = f"{strategy.name} orders by {what}, and none is mapped: give {path_of(Mapping, field)}"
            raise ConfigurationError(STRATEGY_KEY, problem)


def load_notification_settings(configuration: Configuration) -> NotificationSettings:
    """The rows of the settings file; none if no notifications of payments are made.

    Raises:
        ConfigurationError: It cannot be read, or a row is refused.
    """
    if configuration.ingress.events.format != IPF or configuration.notification.handler == PASS_THROUGH:
        return NotificationSettings(())
    file = configuration.notification.settings
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(path_of(Notifications, "settings"), f"{file} cannot be read: {error}") from error
    return parse_notification_settings(StringIO(text), str(file))


def _waits_for_handled(configuration: Configuration) -> bool:
    """Return whether the position waits for handled records. With storage none, files are the store, and stashed records are read
    again.
    """
    is_file_the_store = not storage_kind(configuration).is_durable and configuration.ingress.transport is TransportType.FILE
    return is_file_the_store or configuration.resequencer.acknowledge is Acknowledge.WHEN_HANDLED


def make_handler_of(configuration: Configuration, find_way: FindWay = within_the_turn) -> Handler:
    """Return the handler with the configured target type and settings; a user's own is also looked for in the working directory.

    If lookups were published, their settings count, and this handler has none.
    """
    is_published = find_current(configuration) is not None
    known = NotificationSettings(()) if is_published else load_notification_settings(configuration)
    return _make_handler(configuration, known, find_way)


def _make_handler(
    configuration: Configuration, known: NotificationSettings | Enrichment, find_way: FindWay = within_the_turn
) -> VersionedHandler:
    if configuration.notification.handler == PASS_THROUGH:
        return PassThrough()
    see_working_directory()
    settings = handler_settings(configuration)
    if configuration.ingress.events.format == IPF:
        return make_handler(settings, known, find_way)
    return make_event_handler(settings, find_way)


def handler_settings(configuration: Configuration) -> HandlerSettings:
    """Return the handler's settings; the audit uses them too."""
    data_handler = configuration.notification.data_handler
    return settings_from(
        HandlerSettings,
        configuration.resequencer,
        target_type=configuration.notification.target_type,
        handler=None if configuration.notification.handler == PAYMENTS else configuration.notification.handler,
        max_bytes=output_bytes(configuration.ingress.max_record_bytes),
        makes_facts=configuration.counts_payments,
        data_handler=None if data_handler in (LATEST_OBJECTS_NAME, NO_DATA_NAME) else data_handler,
    )


def output_bytes(max_record_bytes: int) -> int:
    """Return the bytes of notifications that one envelope may cause: several that each repeat the largest payment data."""
    return max(_MIN_OUTPUT_BYTES, 4 * max_record_bytes)


def _region_limits(configuration: Configuration) -> RegionLimits:
    region = configuration.region
    return RegionLimits(region.max_resets, region.drain_timeout_ms, region.reset_timeout_ms)


def _make_transport(configuration: Configuration, wait: Wait, slot: int) -> Transport:
    if is_region(configuration):
        return make_region_transport(configuration, wait, slot)
    if configuration.ingress.transport is TransportType.KAFKA:
        from notification_service.connectors.kafka.sink import KafkaTransport

        return KafkaTransport(kafka_settings(configuration, slot), SystemClock())
    return FileTransport(file_settings(configuration), wait)


def make_order_source(configuration: Configuration) -> OrderSource:
    """Make the worker's source of orders. Nothing is connected yet."""
    if not configuration.orders.is_enabled:
        return NoOrders()
    if configuration.ingress.transport is TransportType.KAFKA:
        from notification_service.connectors.kafka.orders import (
            KafkaOrderSource,  # Imported here, which takes a third of a second.
        )

        return KafkaOrderSource(kafka_settings(configuration))
    return _order_files(configuration)


def make_order_book(configuration: Configuration) -> OrderBook:
    """Make what operators give orders with and read them by. Nothing is connected yet.

    Raises:
        ConfigurationError: Orders are not enabled.
    """
    if not configuration.orders.is_enabled:
        raise ConfigurationError(path_of(Orders, "is_enabled"), "is false: set it to true, and restart the service")
    if configuration.ingress.transport is TransportType.KAFKA:
        from notification_service.connectors.kafka.orders import KafkaOrderBook  # Imported here, which takes a third of a second.

        return KafkaOrderBook(kafka_settings(configuration))
    return _order_files(configuration)


def _order_files(configuration: Configuration) -> OrderFiles:
    return OrderFiles(configuration.orders.directory, configuration.notification.output_directory, SystemFiles())


def _random_token() -> str:
    return secrets.token_hex(8)
