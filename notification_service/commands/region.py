"""`resequencer region | sink`: the regions of this machine's workers, and the attributes of the sink mqtt."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit

import msgspec

from guardian.region import RegionState
from notification_service.commands.command import Subcommand, add_subcommands, load_for, say, write_row
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Notifications, TransportType
from notification_service.configuration.transports import mqtt_sink_settings, sinks_of
from notification_service.connectors.mqtt.settings import MqttSinkSettings
from notification_service.status.report import ParticipantStatus, RegionStatus, StatusReport
from notification_service.status.service_report import NOT_RUNNING, STALE, find_reports
from notification_service.status.sink_attributes import Change, SetAttributes, SinkAttributesFile
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import sign
from notification_service.wiring.regions import ATTRIBUTES, Attribute, RegionNotReset, give_order, values_of, with_attributes
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.keys.value_types import Mismatch
from resequencer.printable import counted, printable

_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_UNANSWERED = "no answer yet: the order stands until the worker reads it, between two intervals"
_HEADINGS = ("worker", "state", "intervals", "drain", "checkpoint", "publication", "reset", "resets", "in a row")


class ShownRegion(msgspec.Struct, frozen=True):
    """One line of `show --json`. `region` is None while the worker has not reported it."""

    slot: int
    state: str
    region: RegionStatus | None


def region(arguments: Namespace) -> ExitCode:
    """Run `resequencer region show | reset`."""
    return _show_region(arguments) if arguments.subcommand == "show" else _reset(arguments)


def add_region_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `region`."""
    add_subcommands(
        parser,
        Subcommand("show", "the state of each worker's region, its last durations, and its participants: source and sinks"),
        Subcommand("reset", "let a failed region go back to its last checkpoint and begin again", _add_reset),
        is_required=True,
    )


def region_lines(shown: Sequence[ShownRegion]) -> Iterator[str]:
    """A table of the regions, then the participants of each and what failed last."""
    rows = [_HEADINGS, *(_row(each) for each in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for each in shown:
        if each.region is None:
            continue
        yield from (f"worker {each.slot}: {_participant(one)}" for one in each.region.participants)
        if each.region.failure is not None:
            yield f"worker {each.slot}: last failure at {each.region.failed_at}: {each.region.failed}: {each.region.failure}"


def _show_region(arguments: Namespace) -> ExitCode:
    """Print the regions. Exit code 0 only if the service runs and no region has failed."""
    run_directory = load_for(arguments).notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    shown = [_shown(state, each) for state, each in service.workers] if service is not None else []
    if arguments.json:
        sys.stdout.writelines(msgspec.json.encode(each).decode() + "\n" for each in shown)
    elif shown:
        sys.stdout.writelines(printable(line) + "\n" for line in region_lines(shown))
    if service is None or state == NOT_RUNNING:
        say(f"the service is {state}")
        return ExitCode.FAILED
    say(f"{counted(len(shown), 'region')} by the workers' last reports")
    has_failed = any(each.region is not None and each.region.state == RegionState.FAILED for each in shown)
    return ExitCode.FAILED if has_failed else ExitCode.DONE


def _reset(arguments: Namespace) -> ExitCode:
    run_directory = load_for(arguments).notification.run_directory
    state, service, _ = find_service(run_directory, SystemClock().now())
    if service is None or state == NOT_RUNNING:
        raise RegionNotReset(f"the service is {state}, so there is no region to reset; its start begins at the last checkpoint")
    workers = [each for _, each in service.workers if arguments.worker in (None, each.slot)]
    if not workers:
        raise RegionNotReset(f"there is no worker {arguments.worker}")
    failed = [each for each in workers if each.region is not None and each.region.state == RegionState.FAILED]
    chosen = workers if arguments.force or arguments.worker is not None else failed
    if not chosen:
        raise RegionNotReset("no region has failed; to reset them all the same, add --force")
    given = {each.slot: give_order(run_directory, each, sign().by, is_forced=arguments.force) for each in chosen}
    waited_for = ", ".join(map(str, given))
    say(f"the order is given to worker {waited_for}; waiting for what comes of it")
    answers = _await(run_directory, given, arguments.wait)
    for slot in sorted(given):
        answer = answers.get(slot)
        text = _UNANSWERED if answer is None else answer.answer
        row = {"slot": slot, "order": given[slot], "isDone": None if answer is None else answer.has_obeyed, "text": text}
        write_row(arguments, row, f"worker {slot}: {text}")
    if not all(each.has_obeyed for each in answers.values()):
        return ExitCode.FAILED
    return ExitCode.DONE if len(answers) == len(given) else ExitCode.OUT_OF_REACH


def _await(run_directory: Path, given: Mapping[int, str], seconds: float) -> dict[int, RegionStatus]:
    """Return the answers that come within so many seconds, by slot."""
    until, answers = monotonic() + seconds, dict[int, RegionStatus]()
    while True:
        for each in find_reports(run_directory):
            if each.region is not None and each.region.answered == given.get(each.slot, ""):
                answers[each.slot] = each.region
        if len(answers) == len(given) or monotonic() >= until:
            return answers
        sleep(_LOOK_SECONDS)


def _shown(state: str, report: StatusReport) -> ShownRegion:
    """A worker that does not run, or does not report any more, has no state of its own."""
    found = report.region
    own = state if found is None or state in (NOT_RUNNING, STALE) else found.state
    return ShownRegion(report.slot, own, found)


def _row(each: ShownRegion) -> tuple[str, ...]:
    found = each.region
    if found is None:
        return (str(each.slot), each.state, "", "", "", "", "", "", "")
    durations = (found.drain_ms, found.checkpoint_ms, found.publication_ms, found.reset_ms)
    return (str(each.slot), each.state, str(found.sequence), *map(_duration, durations), str(found.resets), str(found.attempts))


def _duration(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds} ms"


def _participant(each: ParticipantStatus) -> str:
    able = {"can replay": each.can_replay, "transactional": each.is_transactional, "remembers": each.remembers}
    words = [name if has else f"not {name}" for name, has in able.items() if has is not None]
    words = [word.replace("not can replay", "cannot replay").replace("not remembers", "does not remember") for word in words]
    problem = "" if each.problem is None else f"; its last call failed: {each.problem}"
    return f"{each.name} ({each.role}): {', '.join(words)}{problem}"


def _add_reset(parser: ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="reset regions that have not failed, too")
    parser.add_argument(
        "--worker", type=int, metavar="SLOT", help="only that of this worker; default: all that have failed, with --force all"
    )
    parser.add_argument(
        "--wait", type=float, default=_WAIT_SECONDS, metavar="SECONDS", help="how long to wait for the answer; default: 30"
    )


_KEYS = "payment-status-notification.mqtt"
_BEING_RESET = "is being reset, so nothing was changed. Give the order again afterwards"


class SinkNotSet(ResequencerError):
    """The attributes stay as they are."""


def add_sink_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `sink`."""
    add_subcommands(
        parser,
        Subcommand("show", "server, qos and topics that are in force, and what is configured"),
        Subcommand("set", "change some of them: from the next publication on, and after each reset and start", _add_set),
        Subcommand("reset", "go back to what is configured"),
        is_required=True,
    )


def sink(arguments: Namespace) -> ExitCode:
    """Run `resequencer sink show | set | reset`.

    Raises:
        ConfigurationError: The service has no sink mqtt, or a value is refused.
        SinkNotSet: A region is being reset, or the file cannot be read or written. Nothing has changed.
    """
    configuration = load_for(arguments)
    if TransportType.MQTT not in sinks_of(configuration):
        problem = "names no mqtt: only the attributes of that sink can be changed"
        raise ConfigurationError(path_of(Notifications, "transport"), problem)
    file = SinkAttributesFile(configuration.notification.run_directory)
    if arguments.subcommand == "set":
        _set(arguments, configuration, file)
    elif arguments.subcommand == "reset":
        _refuse_during_a_reset(configuration)
        _store(file, file.remove)
    _show_sink(configuration, file, as_json=arguments.json)
    return ExitCode.DONE


def _set(arguments: Namespace, configuration: Configuration, file: SinkAttributesFile) -> None:
    given = {each: text for each in ATTRIBUTES if (text := getattr(arguments, each.field)) is not None}
    if not given:
        raise ConfigurationError("sink set", f"changes nothing: give one of {', '.join(each.option for each in ATTRIBUTES)}")
    configured, who = values_of(mqtt_sink_settings(configuration)), sign()
    changes = {each.name: Change(configured[each.name], _read(each, text), who.by, who.at) for each, text in given.items()}
    _refuse_during_a_reset(configuration)
    attributes = {**_find(file), **changes}
    settings = _with(configuration, attributes)
    if settings.notifications == settings.dead_letters:
        problem = f"{settings.notifications} would be the topic of notifications and of dead letters. Name another one"
        raise ConfigurationError("sink set", problem)
    _store(file, lambda: file.write(attributes))
    if settings.qos == 0:
        say("qos 0 promises nothing: a message that the broker does not get is lost")
    say(f"this holds until `sink reset`, or until {_KEYS} names another value. Change it there, too")


def _read(attribute: Attribute, text: str) -> str | int:
    try:
        value = attribute.takes.read(text)
        if attribute.name == "url" and urlsplit(text).username is not None:
            raise ConfigurationError(attribute.option, f"has a login, which others could read; set {_KEYS}.user and password")
    except (Mismatch, ValueError):
        raise ConfigurationError(attribute.option, f"is refused; expected: {attribute.takes.expects}") from None
    return value if isinstance(value, int) else str(value)


def _refuse_during_a_reset(configuration: Configuration) -> None:
    """Raise SinkNotSet while a worker resets its region: what is pending would leave by the one or the other."""
    _, service, _ = find_service(configuration.notification.run_directory, SystemClock().now())
    for state, each in service.workers if service is not None else ():
        if state != NOT_RUNNING and each.region is not None and each.region.state == RegionState.RESETTING:
            raise SinkNotSet(f"the region of worker {each.slot} {_BEING_RESET}")


def _find(file: SinkAttributesFile) -> SetAttributes:
    try:
        return file.find() or {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SinkNotSet(f"{file.path} cannot be read: {error}; `resequencer sink reset` removes it") from error


def _with(configuration: Configuration, found: SetAttributes) -> MqttSinkSettings:
    try:
        return with_attributes(mqtt_sink_settings(configuration), found)
    except Mismatch as error:
        raise SinkNotSet("the stored attributes are damaged; `resequencer sink reset` removes them") from error


def _store(file: SinkAttributesFile, store: Callable[[], object]) -> None:
    try:
        store()
    except OSError as error:
        problem = f"{file.path} cannot be written: {error.strerror or error}; make room, or run the command as the service's user"
        raise SinkNotSet(problem) from error


def _show_sink(configuration: Configuration, file: SinkAttributesFile, *, as_json: bool) -> None:
    """Print what is in force. A worker uses it from its next publication on."""
    configured, found = values_of(mqtt_sink_settings(configuration)), _find(file)
    current = values_of(_with(configuration, found))
    if as_json:
        attributes = {name: {"value": current[name], "configured": configured[name]} for name in configured}
        sys.stdout.write(msgspec.json.encode(attributes).decode() + "\n")
        return
    for name, value in current.items():
        is_configured = value == configured[name]
        where = "as configured" if is_configured else f"set by {found[name].by}; configured: {configured[name]}"
        sys.stdout.write(printable(f"{name} = {value} ({where})") + "\n")


def _add_set(parser: ArgumentParser) -> None:
    for each in ATTRIBUTES:
        parser.add_argument(each.option, dest=each.field, metavar=each.name.upper(), help=each.takes.expects)
