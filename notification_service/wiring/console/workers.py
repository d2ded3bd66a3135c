"""What the console may ask of the workers of this machine's service."""

import os
import re
import signal
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import unquote, urlsplit

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.console.access.identity import Authenticator, NoLogin
from notification_service.console.access.logins import BasicLogin, BearerLogin, ProxyLogin, UsersFile
from notification_service.console.settings import HttpSettings, HttpTls
from notification_service.console.units.sent_notifications import left_elsewhere, left_notification, left_unknown
from notification_service.console.units.story import Left
from notification_service.jobs.topic_archive.records_of_key import find_records
from notification_service.status.service_report import Served, ServedStatus, console_file, find_reports, probes_file
from notification_service.supervision.locks import UNKNOWN, RunningService, find_holder
from notification_service.supervision.service_log import NAME
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_text
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.printable import printable

_ANSWER_SECONDS = 3
_LOOK_SECONDS = 0.05
_MOST_BYTES = 256 * 1024
_OF_A_STACK = re.compile(r"(^|\W)(Current thread|Thread) 0x[0-9a-f]+|  File \\?\".{1,1000}\", line [0-9?]+ in |^  (<|\.\.\.)")
"""A line as Python's faulthandler prints it. In a traceback, which ends with the text of an error, a comma follows the number."""
THREADS = signal.SIGUSR1
"""A worker that gets this signal prints the stacks of its threads."""


class LocalWorkers:
    """Finds workers by their reports, and makes sure that each is a child of the running supervisor."""

    def __init__(self, configuration: Configuration) -> None:
        self._run_directory = configuration.notification.run_directory
        self._asked: set[int] = set()

    def restart(self, slot: int) -> bool:
        """Return False also if its supervisor would not start another one, or if it was asked before and has not ended yet."""
        worker = self._find(slot, is_to_end=True)
        if worker is None or worker in self._asked:
            return False
        self._asked.add(worker)
        return _send(worker, signal.SIGTERM)

    def dump_threads(self, slot: int) -> str | None:
        """Return the lines of stacks that the service's log gains after the signal, also if other workers print theirs.

        Other lines are left out: they may quote payments.
        """
        log = self._run_directory / NAME
        before = _size(log)
        worker = self._find(slot)
        if worker is None or not _send(worker, THREADS):
            return None
        until = monotonic() + _ANSWER_SECONDS
        gained = ""
        while monotonic() < until:
            sleep(_LOOK_SECONDS)
            fresh = stacks_in(_read(log, before))
            if fresh and fresh == gained:
                return fresh
            gained = fresh
        return gained or None

    def _find(self, slot: int, *, is_to_end: bool = False) -> int | None:
        """Return the worker's process id, None if there is no such worker, or if none would follow it."""
        holder = find_holder(self._run_directory)
        report = next((each for each in find_reports(self._run_directory) if each.slot == slot), None)
        if holder is None or report is None or report.worker_process_id is None or str(report.process_id) != holder:
            return None
        worker, supervisor = report.worker_process_id, report.process_id
        if worker == supervisor or _parent_of(worker) != supervisor:
            return None
        # In the foreground a service of one worker ends with it.
        return None if is_to_end and report.worker_count == 1 and not _is_in_background(supervisor) else worker


def stacks_in(log: str) -> str:
    """Return the lines of dumps of threads."""
    return "".join(filter(_OF_A_STACK.search, log.splitlines(keepends=True)))


def _send(process: int, number: signal.Signals) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def _is_in_background(supervisor: int) -> bool:
    try:
        return b"supervise" in Path(f"/proc/{supervisor}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _parent_of(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _read(log: Path, since: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(since)
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def make_authenticator(settings: HttpSettings) -> Authenticator:
    """Return what finds out who makes a request.

    Raises:
        ConfigurationError: The users' file has no user who could log in.
        UsersFileUnusable: The users' file cannot be read.
    """
    if settings.auth == "none":
        return NoLogin()
    if settings.auth == "proxy":
        return ProxyLogin(settings.proxy)
    file = UsersFile(settings.users_file)
    users = file.read()
    if not (users.users if settings.auth == "basic" else users.tokens):
        what, command = ("user", "add-user") if settings.auth == "basic" else ("token", "add-token")
        problem = f"is {settings.auth}, and {settings.users_file} has no {what}: run `resequencer console {command} NAME`"
        raise ConfigurationError(path_of(HttpSettings, "auth"), problem)
    return BasicLogin(file, SystemClock()) if settings.auth == "basic" else BearerLogin(file)


def check_tls(tls: HttpTls) -> None:
    """Raises ConfigurationError if the certificate or its key cannot be used."""
    if tls.certificate_file is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        problem = f"{tls.certificate_file} and {tls.key_file} cannot be used: {error}"
        raise ConfigurationError(path_of(HttpTls, "certificate_file"), problem) from error


def find_served(run_directory: Path, service: RunningService) -> ServedStatus:
    """Return the addresses of the console, the metrics and the probes, and why one of them is missing."""
    if service.holder in (None, UNKNOWN):
        return ServedStatus()
    supervisor = int(service.holder)
    console, probes = (file(run_directory).find(supervisor) for file in (console_file, probes_file))
    notes = (*_note("the console does not run", console), *_note("the health probes are not served", probes))
    return ServedStatus({**(console.urls if console else {}), **(probes.urls if probes else {})}, notes)


def _note(what: str, served: Served | None) -> tuple[str, ...]:
    """With addresses, only a part is missing, and the problem says which."""
    if served is None or served.problem is None:
        return ()
    return (served.problem,) if served.urls else (f"{what}: {served.problem}",)


def find_left_in(location: str, topic: str) -> Callable[[str, float], Left]:
    """Return how to look for what left in an archive at this path or URL. Of URLs, only `file:` ones are read.

    The text of another URL is not shown, because it may have a password in it.
    """
    path = find_path(location)
    if path is None:
        return partial(left_elsewhere, location.partition("://")[0])
    return ArchivedOutput(path, topic).find_left


def find_path(location: str) -> Path | None:
    """Return the path of an archive at this path or `file:` URL; None for another URL."""
    scheme, separator, _ = location.partition("://")
    if not separator:
        return Path(location)
    return Path(unquote(urlsplit(location).path)) if scheme == "file" else None


class ArchivedOutput:
    """Reads the archive of the topic of notifications at a path, if there is one."""

    def __init__(self, location: Path, topic: str) -> None:
        self._location = location
        self._topic = topic

    def find_left(self, unit: str, most_seconds: float) -> Left:
        """Return the unit's notifications that were archived. Those that left since are not known. Never raises."""
        if not self._location.is_dir():
            return left_unknown(unit, most_seconds)
        try:
            found = find_records(self._location, self._topic, unit.encode(), most_seconds)
        except ResequencerError as error:
            return Left((), is_complete=False, searched=f"the archive could not be read: {printable(str(error))}")
        told = tuple(left_notification(each.headers, each.value) for each in found.records)
        if found.archived_at is None:
            return Left((), is_complete=False, searched=f"the archive in {self._location}, which is empty yet")
        part = "" if found.is_whole else " in part: the time for it is over"
        searched = f"the archive in {self._location}{part}; what left after {instant_text(found.archived_at)} is not in it"
        return Left(told, is_complete=False, searched=searched)
