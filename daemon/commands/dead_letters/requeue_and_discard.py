"""`dead-letters requeue` and `discard`, with a report of what happened to each dead letter."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator

from connectors.dead_letters.port import DeadLetterStore, Outcome, last_actions
from connectors.dead_letters.stored_dead_letter import StoredDeadLetter
from daemon.commands.dead_letters.report import DeadLetterReport
from daemon.commands.dead_letters.selection import (
    Choice,
    choose,
    named,
    new_ones,
    why_not_discard,
    why_not_requeue,
    why_not_requeue_again,
)
from daemon.exit_code import ExitCode


def requeue(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Requeue dead letters in the order in which they were set aside, however they are named.

    Before that, finish the requeueing that a crash interrupted.

    Raises:
        DeadLettersInUse: Another command uses them.
        TransportUnavailable: No room, or no answer. Reported dead letters are done; the same call again does the rest, once.
    """
    if not _says_which(arguments):
        return _refused("give numbers, --reason or --all (exactly one of these); --again needs numbers")
    with DeadLetterReport(as_json=arguments.json) as report:
        decisions = _Decisions(store, report)
        ended = decisions.begin()
        decisions.requeue(decisions.choose_to_requeue(arguments, ended))
        return decisions.conclude("requeued")


def discard(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Record that no action is needed on dead letters, with the person and the reason. Raises as `requeue`."""
    with DeadLetterReport(as_json=arguments.json) as report:
        decisions = _Decisions(store, report)
        decisions.begin()
        decisions.discard(arguments.numbers, arguments.because)
        return decisions.conclude("done")


class _Decisions:
    def __init__(self, store: DeadLetterStore, report: DeadLetterReport) -> None:
        self._store = store
        self._report = report
        self._failed = 0

    def begin(self) -> set[str]:
        return {self._tell(outcome) for outcome in self._store.begin()}

    def choose_to_requeue(self, arguments: Namespace, ended: set[str]) -> Choice:
        last = last_actions(self._store)
        if not arguments.numbers:
            return choose(new_ones(self._store.letters(), last, arguments.reason), last, why_not_requeue)
        numbers = [number for number in dict.fromkeys(arguments.numbers) if number not in ended]
        why_not = why_not_requeue_again if arguments.again else why_not_requeue
        return self._with_unknown(choose(named(self._store.letters(), numbers), last, why_not), numbers)

    def requeue(self, choice: Choice) -> None:
        self._refuse(choice)
        for outcome in self._store.requeue(self._read(choice)):
            self._tell(outcome)
            choice.chosen.pop(outcome.number, None)
        for number in choice.chosen:
            self._tell(Outcome(number, None, f"it is no longer in {self._store.where}; put it back there"))

    def discard(self, numbers: Iterable[str], because: str) -> None:
        wanted = list(dict.fromkeys(numbers))
        choice = choose(named(self._store.letters(), wanted), last_actions(self._store), why_not_discard)
        self._refuse(self._with_unknown(choice, wanted))
        if choice.chosen:
            self._store.discard(list(choice.chosen.values()), because)
        for number in choice.chosen:
            self._report.tell(f"{number}: discarded", {"number": number, "did": "discarded"})

    def conclude(self, done: str) -> ExitCode:
        count = self._report.count - self._failed
        sys.stderr.write(f"resequencer: {count} {done}, {self._failed} not; read {self._store.where}\n")
        return ExitCode.NOT_SO if self._failed else ExitCode.DONE

    def _read(self, choice: Choice) -> Iterator[StoredDeadLetter]:
        """Read the named dead letters; a dead letter that stands on several lines is read once."""
        ids = dict(choice.chosen)
        for stored in self._store.letters() if ids else ():
            if ids.get(stored.number) == stored.letter_id:
                del ids[stored.number]
                yield stored

    def _with_unknown(self, choice: Choice, numbers: Iterable[str]) -> Choice:
        for number in numbers:
            if number not in choice.chosen and number not in choice.refused:
                choice.refused[number] = f"no dead letter has this number in {self._store.where}"
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


def _says_which(arguments: Namespace) -> bool:
    ways = [bool(arguments.numbers), arguments.reason is not None, arguments.all]
    return sum(ways) == 1 and (bool(arguments.numbers) or not arguments.again)


def _refused(usage: str) -> ExitCode:
    sys.stderr.write(f"resequencer: {usage}\n")
    return ExitCode.USAGE
