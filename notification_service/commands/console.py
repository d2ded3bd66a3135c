"""`resequencer console`: what operators see by HTTP; `start` and `supervise` run it beside the workers."""

import getpass
import logging
import os
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path

from notification_service.commands.command import Subcommand, add_subcommands, load_for
from notification_service.configuration.configuration import Configuration
from notification_service.console.access.identity import Role
from notification_service.console.access.settings import HttpSettings
from notification_service.console.access.users_file import UsersFile
from notification_service.status.service_report import Served, console_file
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_holder
from notification_service.supervision.service_log import configure_logs
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.printable import printable

_MIN_CHARACTERS = 12
_MAX_CHARACTERS = 1_024
_LONGEST_NAME = 64


class PasswordRefused(ResequencerError):
    """The password cannot be used; the text says why."""


def user_name(text: str) -> str:
    """Return the name. Raises ArgumentTypeError for one that HTTP or a log line cannot carry."""
    if not 0 < len(text) <= _LONGEST_NAME or ":" in text or printable(text) != text:
        raise ArgumentTypeError(f"a name has 1 to {_LONGEST_NAME} characters, none of them a colon or a control character")
    return text


def change_users(arguments: Namespace, settings: HttpSettings) -> ExitCode:
    """Change the file of users. A running console reads it again with the next request."""
    file, name = UsersFile(settings.users_file), arguments.name
    if arguments.subcommand == "remove-user":
        is_removed = file.remove(name)
        sys.stdout.write(f"{'removed' if is_removed else 'there is no user or token named'} {name}\n")
        return ExitCode.DONE if is_removed else ExitCode.FAILED
    roles = tuple(Role(each) for each in dict.fromkeys(arguments.role or [Role.VIEWER]))
    if arguments.subcommand == "add-token":
        sys.stdout.write(f"{file.make_token(name, roles)}\n")
        sys.stderr.write(f"This is the token of {name}. It is not stored and cannot be shown again.\n")
        return ExitCode.DONE
    file.set_password(name, _password(), roles)
    sys.stdout.write(f"{name} may log in as {', '.join(roles)}\n")
    return ExitCode.DONE


def _password() -> str:
    """Ask for it twice, or read a line of the standard input where that is no terminal."""
    if sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if getpass.getpass("the same again: ") != password:
            raise PasswordRefused("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not _MIN_CHARACTERS <= len(password) <= _MAX_CHARACTERS:
        raise PasswordRefused(f"a password has {_MIN_CHARACTERS} to {_MAX_CHARACTERS:,} characters; nothing was changed")
    return password


_log = logging.getLogger("resequencer.console")
_LIBRARIES = ("starlette", "uvicorn", "websockets", "jinja2", "multipart", "prometheus_client")
_NICE = 10
_OOM_SCORE = 500
"""As if it held half of the machine's memory more than it does (proc_pid_oom_score_adj(5)); a worker has 0."""


class LibrariesMissing(ConfigurationError):
    """The extra `console` is not installed."""

    def __init__(self, missing: str) -> None:
        super().__init__("resequencer[console]", f"is not installed ({missing} is missing): pip install 'resequencer[console]'")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the subcommands, and what only a supervisor uses."""
    parser.add_argument("--lifeline", type=int, help=SUPPRESS)
    add_subcommands(
        parser,
        Subcommand("serve", "serve the console in the foreground until SIGTERM; the same as without a subcommand"),
        Subcommand("add-user", "add a user with a password, or change it; for auth = basic", _add_login_arguments),
        Subcommand("add-token", "make a token for a program and print it; for auth = bearer", _add_login_arguments),
        Subcommand("remove-user", "remove a user or a token", _add_name),
        is_required=False,
    )


def console(arguments: Namespace) -> ExitCode:
    """Serve until SIGTERM or SIGINT, or until the supervisor that started this process is gone."""
    configuration = load_for(arguments)
    if arguments.subcommand not in (None, "serve"):
        return change_users(arguments, configuration.http)
    missing = next((each for each in _LIBRARIES if find_spec(each) is None), None)
    if missing is not None:
        raise LibrariesMissing(missing)
    configure_logs(configuration.logging)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    os.nice(_NICE)  # The workers come first.
    offer_to_be_killed()
    _serve(configuration, arguments.lifeline)
    return ExitCode.DONE


def offer_to_be_killed() -> None:
    """Let a kernel without memory end this process before a worker. Raising the score needs no right."""
    score = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):
        if int(score.read_text()) < _OOM_SCORE:
            score.write_text(str(_OOM_SCORE))


def _has_console(configuration: Configuration) -> bool:
    """Whether a service holds the run directory and has a console of its own."""
    run_directory = configuration.notification.run_directory
    holder = find_holder(run_directory)
    served = console_file(run_directory).find(int(holder)) if holder is not None and holder.isdigit() else None
    return served is not None and bool(served.urls)


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument("name", type=user_name, metavar="NAME")


def _add_login_arguments(parser: ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "--role",
        action="append",
        choices=[role.value for role in Role],
        help="viewer (the default) sees all but payment data, operator changes things, payments sees payment data; repeatable",
    )


def _serve(configuration: Configuration, lifeline: int | None) -> None:
    from notification_service.console.access.settings import CannotListen, listen, url_of
    from notification_service.console.application import (
        Endpoint,
        make_application,  # Here, for these libraries take half a second to import.
        serve,
    )
    from notification_service.console.context import Console
    from notification_service.console.prometheus import ServiceCollector, make_metrics_application
    from notification_service.wiring.console import check_tls, console_sources, make_authenticator

    settings = configuration.http
    authenticator = make_authenticator(settings)
    check_tls(settings.tls)
    bound = listen(settings)
    url = url_of(bound, "https" if settings.tls.certificate_file else "http")
    urls, problem = {"console": url}, None
    endpoints, sources = [], console_sources(configuration)
    with closing(Console(settings, sources)) as made:
        endpoints.append(Endpoint(make_application(made, authenticator), bound, settings.tls, settings.proxy.addresses))
        try:
            measured = listen(settings.metrics)
        except CannotListen as error:
            problem = f"no metrics are served: {error}"
            _log.warning("%s", problem)
        else:
            urls["metrics"] = f"{url_of(measured)}/metrics"
            collector = ServiceCollector(
                sources.find_report,
                lambda: made.sampler.new_dead_letters,
                lambda: made.sampler.archive_distances,
                sources.find_delivery,
                made.groups,
                sources.find_bridge,
                sources.find_aggregation,
            )
            endpoints.append(Endpoint(make_metrics_application(collector), measured, proxies=settings.proxy.addresses))
        file = console_file(configuration.notification.run_directory)
        supervisor = os.getpid() if lifeline is None else os.getppid()
        # Beside a service that runs, its own console's address is the one to find.
        writes_file = lifeline is not None or not _has_console(configuration)
        if writes_file:
            file.write(Served(supervisor, os.getpid(), problem=problem, urls=urls))
        _log.info("the console is at %s", url)
        if lifeline is None:
            sys.stdout.write(f"console: {url}\n")
            sys.stdout.flush()
        made.start()
        try:
            serve(endpoints, lifeline, made.end_streams)
        finally:
            if lifeline is None and writes_file:
                file.remove()
