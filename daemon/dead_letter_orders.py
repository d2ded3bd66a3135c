"""`dead-letters requeue` and `discard`: one person at a time, and each dead letter is told what became of it."""

import os
import pwd
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from connectors.file_dead_letter_actions import FILE_NAME, ActionsFile, Discarded
from connectors.file_dead_letters import DeadLettersFile, FiledLetter
from connectors.file_operations import SystemFiles
from connectors.file_requeue import Outcome, Requeue, Signature
from connectors.file_settings import FileSettings
from daemon.dead_letter_choice import Choice, choose, named, new_ones, why_not_discard, why_not_requeue, why_not_requeue_again
from daemon.dead_letter_report import DeadLetterReport
from daemon.dead_letter_views import where_read
from daemon.exit_code import ExitCode
from daemon.run_lock import AlreadyRunning, RunLock
from daemon.system_clock import SystemClock
from domain.clock import instant_text
from domain.errors import ResequencerError


class OrdersUnderWay(ResequencerError):
    """Somebody else requeues or discards at this moment."""

    def __init__(self) -> None:
        super().__init__("another `dead-letters requeue` or `discard` is under way here; try again when it has ended")


def requeue(arguments: Namespace, settings: FileSettings) -> ExitCode:
    """In the order in which they were set aside, however they are named; before that, what a crash left begun is ended.

    Raises:
        OrdersUnderWay: By somebody else.
        TransportUnavailable: No room, or the disk fails. What was told is done; the same call again does the rest, once.
    """
    if not _says_which(arguments):
        return _refused("name the numbers, or give --reason or --all, one of them; --again goes with numbers")
    with _orders(arguments, settings) as orders:
        ended = orders.end_begun()
        orders.requeue(orders.choose_to_requeue(arguments, ended))
        return orders.conclude("requeued")


def discard(arguments: Namespace, settings: FileSettings) -> ExitCode:
    """Note who says that nothing is to be done, and why. Raises as `requeue`."""
    with _orders(arguments, settings) as orders:
        orders.end_begun()
        orders.discard(arguments.numbers, arguments.because)
        return orders.conclude("done")


class NothingSetAside(ResequencerError):
    """There is no output directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory}: there is no such directory, so nothing was set aside; is it the right configuration?")


class _Orders:
    """What is done while the lock is held."""

    def __init__(self, settings: FileSettings, report: DeadLetterReport) -> None:
        files = SystemFiles()
        self._letters = DeadLettersFile(settings.out_directory, files)
        self._actions = ActionsFile(settings.out_directory, files)
        self._requeue = Requeue(settings.in_directory, self._letters, self._actions, files, sign)
        self._report = report
        self._failed = 0

    def end_begun(self) -> set[str]:
        return {self._tell(outcome) for outcome in self._requeue.resume()}

    def choose_to_requeue(self, arguments: Namespace, ended: set[str]) -> Choice:
        last = self._actions.last()
        if not arguments.numbers:
            return choose(new_ones(self._letters.letters(), last, arguments.reason), last, why_not_requeue)
        numbers = [number for number in dict.fromkeys(arguments.numbers) if number not in ended]
        why_not = why_not_requeue_again if arguments.again else why_not_requeue
        return self._with_unknown(choose(named(self._letters.letters(), numbers), last, why_not), numbers)

    def requeue(self, choice: Choice) -> None:
        self._refuse(choice)
        for outcome in self._requeue.requeue(self._read(choice)):
            self._tell(outcome)
            choice.chosen.pop(outcome.number, None)
        for number in choice.chosen:
            self._tell(Outcome(number, None, f"it is no longer in {self._letters.path}; put that back"))

    def discard(self, numbers: Iterable[str], because: str) -> None:
        wanted, signature = list(dict.fromkeys(numbers)), sign()
        choice = choose(named(self._letters.letters(), wanted), self._actions.last(), why_not_discard)
        self._refuse(self._with_unknown(choice, wanted))
        done = [
            Discarded(number=number, letter=digest, by=signature.by, at=signature.at, because=because)
            for number, digest in choice.chosen.values()
        ]
        if done:
            self._actions.append(done)
        for each in done:
            self._report.tell(f"{each.number}: discarded", {"number": each.number, "did": "discarded"})

    def conclude(self, done: str) -> ExitCode:
        count = self._report.count - self._failed
        sys.stderr.write(f"resequencer: {count} {done}, {self._failed} not; read {where_read(self._letters)}\n")
        return ExitCode.NOT_SO if self._failed else ExitCode.DONE

    def close(self) -> None:
        self._actions.close()

    def _read(self, choice: Choice) -> Iterator[FiledLetter]:
        """A letter on several lines once."""
        ids = dict(choice.chosen)
        for filed in self._letters.letters():
            if ids.get(filed.number) == filed.letter_id:
                del ids[filed.number]
                yield filed

    def _with_unknown(self, choice: Choice, numbers: Iterable[str]) -> Choice:
        for number in numbers:
            if number not in choice.chosen and number not in choice.refused:
                choice.refused[number] = f"no dead letter has this number in {where_read(self._letters)}"
        return choice

    def _refuse(self, choice: Choice) -> None:
        for number, problem in choice.refused.items():
            self._tell(Outcome(number, None, problem))

    def _tell(self, outcome: Outcome) -> str:
        if outcome.position is None:
            self._failed += 1
            facts = {"number": outcome.number, "problem": outcome.problem}
            self._report.tell(f"{outcome.number}: refused: {outcome.problem}", facts)
        else:
            facts = {"number": outcome.number, "did": "requeued", "position": outcome.position}
            self._report.tell(f"{outcome.number}: requeued, now at {outcome.position}", facts)
        return outcome.number


@contextmanager
def _orders(arguments: Namespace, settings: FileSettings) -> Iterator[_Orders]:
    """The lock is beside what it guards, and not the service's, which may be running."""
    if not settings.out_directory.is_dir():
        raise NothingSetAside(settings.out_directory)
    lock = RunLock(settings.out_directory, FILE_NAME)
    try:
        lock.acquire()
    except AlreadyRunning as error:
        raise OrdersUnderWay from error
    try:
        with DeadLetterReport(as_json=arguments.json) as report, closing(_Orders(settings, report)) as orders:
            yield orders
    finally:
        lock.release()


def sign() -> Signature:
    """The user of this process and the instant."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    return Signature(name, instant_text(SystemClock().now()))


def _says_which(arguments: Namespace) -> bool:
    ways = [bool(arguments.numbers), arguments.reason is not None, arguments.all]
    return sum(ways) == 1 and (bool(arguments.numbers) or not arguments.again)


def _refused(usage: str) -> ExitCode:
    sys.stderr.write(f"resequencer: {usage}\n")
    return ExitCode.USAGE
