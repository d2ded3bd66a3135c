"""The dead letters of a service on files, and the actions on them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from notification_service.connectors.dead_letters.actions import Action, Discarded, EditProposed, EditRejected, LetterId
from notification_service.connectors.dead_letters.port import DeadLettersInUse, Outcome, Sign
from notification_service.connectors.dead_letters.stored_dead_letter import Edit, StoredDeadLetter
from notification_service.connectors.files.dead_letter_actions import FILE_NAME, ActionsFile
from notification_service.connectors.files.dead_letters import DeadLettersFile
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.requeue import Requeue
from notification_service.connectors.files.settings import FileSettings
from notification_service.supervision.run_lock import AlreadyRunning, RunLock
from resequencer.errors import ResequencerError
from resequencer.printable import printable


class NothingSetAside(ResequencerError):
    """There is no output directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"{directory}: there is no such output directory, so there are no dead letters; is this the right configuration?"
        )


class FileDeadLetterStore:
    """The dead-letter store on files. A lock beside the file lets one command at a time write; it is not the service's lock."""

    def __init__(self, settings: FileSettings, sign: Sign) -> None:
        files = SystemFiles()
        self._directory = settings.out_directory
        self._letters = DeadLettersFile(self._directory, files)
        self._actions = ActionsFile(self._directory, files)
        self._requeue = Requeue(settings, self._letters, self._actions, files, sign)
        self._lock = RunLock(self._directory, FILE_NAME)
        self._sign = sign

    @property
    def where(self) -> str:
        """The path of the file, and the names of other files of dead letters beside it that are not read."""
        others = self._letters.find_others()
        aside = f" (only this file is read, not {', '.join(map(printable, others))})" if others else ""
        return f"{self._letters.path}{aside}"

    def letters(self) -> Iterator[StoredDeadLetter]:
        return self._letters.letters()

    def actions(self) -> Iterator[Action]:
        return self._actions.read()

    def begin(self) -> Iterator[Outcome]:
        """Begin as the port says. Also raises NothingSetAside if there is no output directory."""
        if not self._directory.is_dir():
            raise NothingSetAside(self._directory)
        try:
            self._lock.acquire()
        except AlreadyRunning as error:
            raise DeadLettersInUse from error
        yield from self._requeue.resume()

    def requeue(self, letters: Iterable[StoredDeadLetter]) -> Iterator[Outcome]:
        return self._requeue.requeue(letters)

    def discard(self, letters: Sequence[LetterId], because: str) -> None:
        by, at = self._sign()
        self._actions.append(
            [Discarded(number=number, letter=digest, by=by, at=at, because=because) for number, digest in letters]
        )

    def propose(self, letter: LetterId, edit: Edit, *, again: bool, anyway: bool) -> None:
        (number, digest), (by, at) = letter, self._sign()
        proposal = EditProposed(
            number=number, letter=digest, by=by, at=at, because=edit.because, value=edit.value, again=again, anyway=anyway
        )
        self._actions.append([proposal])

    def reject(self, letter: LetterId, because: str) -> None:
        (number, digest), (by, at) = letter, self._sign()
        self._actions.append([EditRejected(number=number, letter=digest, by=by, at=at, because=because)])

    def close(self) -> None:
        self._actions.close()
        self._lock.release()
