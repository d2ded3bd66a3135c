"""`resequencer bridge`: carries messages from a broker of MQTT or AMQP to what the ingress reads, in the foreground."""

from argparse import SUPPRESS, ArgumentParser, Namespace

from notification_service.bridge.runner import run_reporting
from notification_service.bridge.settings import BridgeSettings
from notification_service.configuration.configuration import load
from notification_service.configuration.schema import path_of
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import RunLock
from notification_service.supervision.service_log import configure_logs
from notification_service.supervision.stop_signal import Lifeline, StopSignal
from notification_service.wiring.bridge import make_bridge, make_report
from notification_service.wiring.regions import refuse_unusable_bridge
from resequencer.errors import ConfigurationError


def bridge(arguments: Namespace) -> ExitCode:
    """Run the bridge until SIGTERM or SIGINT. What is not acknowledged by then stays with the broker.

    Raises:
        ConfigurationError: No bridge is configured, or another one has taken the session over.
        AlreadyRunning: The bridge of this run directory runs.
    """
    stop = StopSignal(None if arguments.lifeline is None else Lifeline(arguments.lifeline))
    stop.install()
    configuration = load(arguments.config, arguments.overrides)
    if not configuration.bridge.is_enabled:
        raise ConfigurationError(path_of(BridgeSettings, "is_enabled"), "is false: set it to true")
    refuse_unusable_bridge(configuration)
    configure_logs(configuration.logging)
    lock = RunLock(configuration.notification.run_directory, "bridge")
    lock.acquire()
    run_reporting(make_bridge(configuration, stop), lambda: stop.is_set, make_report(configuration), stop.wait)
    return ExitCode.DONE


def add_arguments(parser: ArgumentParser) -> None:
    """Add what only a supervisor gives."""
    parser.add_argument("--lifeline", type=int, help=SUPPRESS)
