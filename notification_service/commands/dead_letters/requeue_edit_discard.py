"""`dead-letters requeue`, `edit` and `discard`, with a report of what happened to each dead letter."""

import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from notification_service.commands.dead_letters.report import DeadLetterReport
from notification_service.commands.subcommands import load_for
from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters.edited_value import find_flaw
from notification_service.connectors.dead_letters.port import DeadLetterStore, Outcome
from notification_service.connectors.dead_letters.stored_dead_letter import Edit, StoredDeadLetter
from notification_service.console.settings import EDIT
from notification_service.supervision.exit_code import ExitCode
from notification_service.wiring.composition import make_decoder
from resequencer.errors import ResequencerError


class ValueUnreadable(ResequencerError):
    """The file with the edited value cannot be read."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(f"{file} cannot be read: {error.strerror or error}")


def requeue(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Requeue dead letters in the order in which they were set aside, however they are named.

    Before that, finish the requeueing that a crash interrupted.

    Raises:
        DeadLettersInUse: Another command uses them.
        TransportUnavailable: No room, or no answer. Reported dead letters are done; the same call again does the rest, once.
    """
    if not _says_which(arguments):
        return _refused("give numbers, --reason or --all (exactly one of these); --again needs numbers")
    if arguments.numbers:
        outcomes = decisions.requeue_named(store, arguments.numbers, again=arguments.again)
    else:
        outcomes = decisions.requeue_new(store, arguments.reason)
    return _report(arguments, store, outcomes, "requeued")


def edit(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Requeue one dead letter with the value in a file, or propose it. Raises as `requeue`, and ValueUnreadable."""
    configuration = load_for(arguments)
    decoder = make_decoder(configuration)

    def find_flaw_of(letter: StoredDeadLetter) -> str | None:
        flaw = None if arguments.anyway else find_flaw(letter, decoder.decode)
        return flaw and f"{flaw}; use --anyway to send it all the same"

    edited = Edit(_read(arguments.value), arguments.because)
    if EDIT in configuration.http.approval:
        again, anyway = arguments.again, arguments.anyway
        proposed = decisions.propose_edit(store, arguments.number, edited, find_flaw_of, again=again, anyway=anyway)
        return _report(arguments, store, proposed, "proposed (another person has to approve it in the console: http.approval)")
    outcomes = decisions.edit(store, arguments.number, edited, find_flaw_of, again=arguments.again)
    return _report(arguments, store, outcomes, "edited")


def discard(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Record that no action is needed on dead letters, with the person and the reason. Raises as `requeue`."""
    return _report(arguments, store, decisions.discard(store, arguments.numbers, arguments.because), "done")


def _report(arguments: Namespace, store: DeadLetterStore, outcomes: Iterable[Outcome], done: str) -> ExitCode:
    failed = 0
    with DeadLetterReport(as_json=arguments.json) as report:
        for each in outcomes:
            failed += each.problem is not None
            report.tell(*_told(each))
        sys.stderr.write(f"resequencer: {report.count - failed} {done}, {failed} not; read {store.where}\n")
    return ExitCode.NOT_SO if failed else ExitCode.DONE


def _told(outcome: Outcome) -> tuple[str, dict[str, str]]:
    number, position, problem, done = outcome
    if problem is not None:
        return f"{number}: refused: {problem}", {"number": number, "problem": problem}
    if position is None:
        return f"{number}: {done}", {"number": number, "did": done}
    return f"{number}: {done}, now at {position}", {"number": number, "did": done, "position": position}


def _read(file: Path) -> bytes:
    """Return the bytes of the file, or of the standard input if it is `-`."""
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise ValueUnreadable(file, error) from error


def _says_which(arguments: Namespace) -> bool:
    ways = [bool(arguments.numbers), arguments.reason is not None, arguments.all]
    return sum(ways) == 1 and (bool(arguments.numbers) or not arguments.again)


def _refused(usage: str) -> ExitCode:
    sys.stderr.write(f"resequencer: {usage}\n")
    return ExitCode.USAGE
