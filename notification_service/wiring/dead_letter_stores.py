"""Opens the dead-letter store of a configuration, and names the person who acts, also in the audit log."""

import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.configuration.transports import kafka_settings, only_with_one_kind
from notification_service.connectors.dead_letters.actions import Action, StoredDeadLetter
from notification_service.connectors.dead_letters.port import (
    AskedFor,
    DeadLettersInUse,
    DeadLetterStore,
    NotedActions,
    Outcome,
    Sign,
    Signature,
)
from notification_service.connectors.files.dead_letters import FILE_NAME, ActionsFile, DeadLettersFile
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.requeue import Requeue
from notification_service.connectors.files.settings import FileSettings
from notification_service.console.access.identity import AuditLog
from notification_service.supervision.locks import AlreadyRunning, RunLock
from notification_service.supervision.system_clock import SystemClock, steady_clock
from notification_service.wiring.composition import make_unit_finder
from notification_service.wiring.delivery import find_receiver_of, open_dead_letters
from resequencer.clock import instant_text
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.printable import printable
from storage.private_file import make_lasting_directory


class NoOutputDirectory(ResequencerError):
    """There is no output directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"{directory}: there is no such output directory, so there are no dead letters; is this the right configuration?"
        )


class FileDeadLetterStore(NotedActions):
    """The dead-letter store on files. A lock beside the file lets one command at a time write; it is not the service's lock."""

    def __init__(self, settings: FileSettings, sign: Sign) -> None:
        files = SystemFiles()
        self._directory = settings.out_directory
        self._dead_letters = DeadLettersFile(self._directory, files)
        self._actions = ActionsFile(self._directory, files)
        super().__init__(sign, self._actions.append)
        self._requeue = Requeue(settings, self._dead_letters, self._actions, files, sign)
        self._lock = RunLock(self._directory, FILE_NAME)

    @property
    def where(self) -> str:
        """The path of the file, and the names of other files of dead letters beside it that are not read."""
        others = self._dead_letters.find_others()
        aside = f" (only this file is read, not {', '.join(map(printable, others))})" if others else ""
        return f"{self._dead_letters.path}{aside}"

    def letters(self) -> Iterator[StoredDeadLetter]:
        return map(self.named, self._dead_letters.letters())

    def actions(self) -> Iterator[Action]:
        return self._actions.read()

    def begin(self) -> Iterator[Outcome]:
        """Begin as the port says. Also raises NoOutputDirectory if there is no output directory."""
        if not self._directory.is_dir():
            raise NoOutputDirectory(self._directory)
        try:
            self._lock.acquire()
        except AlreadyRunning as error:
            raise DeadLettersInUse from error
        yield from self._requeue.resume()

    def requeue(self, letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        return self._requeue.requeue(letters)

    def close(self) -> None:
        self._actions.close()
        self._lock.release()


def sign() -> Signature:
    """Return the signature of an action: the user of this process, and the instant."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    return Signature(name, instant_text(SystemClock().now()))


def open_store(configuration: Configuration, asked_for: AskedFor, sign: Sign = sign) -> DeadLetterStore:
    """Open the store of dead letters; nothing is written. `sign` names who acts, by default the user of this process.

    Raises:
        ReceiverUnknown: No receiver of this name is delivered to straight from a topic.
        ConfigurationError: The service's own dead letters are not of the kind of its input, so they cannot be sent again.
    """
    receiver = asked_for.receiver or next((find_receiver_of(configuration, each) for each in asked_for.numbers), None)
    if receiver is not None:
        return open_dead_letters(configuration, receiver, asked_for, sign)
    ingress, notification = configuration.ingress, configuration.notification
    refusal = only_with_one_kind(configuration, "dead-letters")
    if refusal is not None:
        where = {
            TransportType.KAFKA: f"topic {notification.dead_letters_topic}",
            TransportType.FILE: f"file {notification.output_directory / 'dead-letters.jsonl'}",
            TransportType.JMS: f"queue {notification.jms.dead_letters}",
            TransportType.MQTT: f"topic {notification.mqtt.dead_letters}",
            TransportType.XMS: f"queue {notification.xms.dead_letters}",
        }[notification.transport]
        raise ConfigurationError(refusal.path, f"{refusal.problem}. These dead letters are in the {where}")
    if notification.transport is TransportType.FILE:
        output = notification.output_directory
        settings = FileSettings(ingress.topic, ingress.file_directory, output, ingress.max_record_bytes)
        return _naming(FileDeadLetterStore(settings, sign), configuration)
    from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore

    return _naming(KafkaDeadLetterStore(kafka_settings(configuration), asked_for, sign), configuration)


_S = TypeVar("_S", bound=NotedActions)


def _naming(store: _S, configuration: Configuration) -> _S:
    store.find_unit = make_unit_finder(configuration)
    return store


def note_from_shell(configuration: Configuration, action: str, **details: str | int | None) -> None:
    """Write into the audit log that the user of this process does `action` by a command. A detail that is None is left out.

    Raises: as `AuditLog.note_from_shell`.
    """
    directory = configuration.notification.run_directory
    make_lasting_directory(directory)
    clock = steady_clock(directory, "console", configuration.clock_trusted_after_ms, keeps=False)
    log = AuditLog(directory, configuration.http.audit_retention_ms, clock)
    log.note_from_shell(sign().by, action, **{name: value for name, value in details.items() if value is not None})
