"""`resequencer dead-letters list | show | requeue | edit | discard`: shows dead letters, and decides about them."""

import base64
import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from notification_service.commands.command import Subcommand, add_subcommands, instant, load_for, say
from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters.actions import (
    NEW,
    Action,
    Discarded,
    Edit,
    Edited,
    Editing,
    EditProposed,
    EditRejected,
    Requeued,
    Requeueing,
    StoredDeadLetter,
    state_after,
)
from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Outcome, find_flaw, last_actions
from notification_service.console.access.settings import EDIT
from notification_service.events.settings import IPF
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.composition import make_decoder
from notification_service.wiring.dead_letter_stores import open_store
from resequencer.clock import instant_text
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ResequencerError
from resequencer.printable import counted, find_text, printable


class DeadLetterReport:
    """Writes each outcome at once, so that a later failure cannot hide what was done."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.count = 0

    def __enter__(self) -> Self:
        if self._as_json:
            sys.stdout.write("[")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._as_json:
            sys.stdout.write("\n]\n")
        sys.stdout.flush()

    def tell(self, line: str, facts: Mapping[str, object]) -> None:
        """Write one outcome: `line` is for people and always printed as one line, `facts` is for programs."""
        if self._as_json:
            sys.stdout.write(",\n" if self.count else "\n")
            sys.stdout.write(json.dumps(facts))
        else:
            sys.stdout.write(printable(line) + "\n")
        self.count += 1


class DeadLetterUnknown(ResequencerError):
    """No dead letter has this number."""

    def __init__(self, number: str, where: str) -> None:
        super().__init__(f"{number}: no dead letter has this number in {where}")


def list_dead_letters(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Print one line or JSON object per dead letter, in the order in which they were made.

    Of an edited one it also has the person, the time and the reason.
    """
    last = last_actions(store)
    with DeadLetterReport(as_json=arguments.json) as report:
        for stored in store.letters():
            action = last.get(stored.letter_id)
            facts = _facts(stored, action.state if action else NEW)
            if _is_asked_for(arguments, stored, facts):
                edit = _edit_facts(action)
                line = [str(fact or "-") for fact in facts.values()]
                report.tell("  ".join([*line, *(f"{name} {fact}" for name, fact in edit.items())]), {**facts, **edit})
    say(f"{counted(report.count, 'dead letter')} of {store.where}")
    return ExitCode.DONE


def show_dead_letter(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Print one dead letter with all details, or only the bytes of its value.

    Raises:
        DeadLetterUnknown: There is no such number.
    """
    stored = next((each for each in store.letters() if each.number == arguments.number), None)
    if stored is None:
        raise DeadLetterUnknown(arguments.number, store.where)
    if arguments.raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(stored.letter.record.content)
        sys.stdout.buffer.flush()
        return ExitCode.DONE
    history = [action for action in store.actions() if action.letter_id == stored.letter_id]
    if arguments.json:
        sys.stdout.write(json.dumps(_everything(stored, history), indent=2) + "\n")
    else:
        sys.stdout.write("".join(line + "\n" for line in _lines(stored, history)))
    return ExitCode.DONE


def _facts(stored: StoredDeadLetter, state: str) -> dict[str, str | None]:
    """The fields of a dead letter, in the order in which they stand on a line."""
    dead_letter = stored.letter
    return {
        "number": stored.number,
        "state": state,
        "reason": dead_letter.reason.value,
        "unit": stored.unit,
        "source_position": str(dead_letter.record.origin),
        "at": instant_text(dead_letter.dead_at),
        "error": dead_letter.error,
    }


def _edit_facts(action: Action | None) -> dict[str, str]:
    if not isinstance(action, Edited | Editing):
        return {}
    return {"edited_by": action.by, "edited_at": action.at, "because": action.because}


def _is_asked_for(arguments: Namespace, stored: StoredDeadLetter, facts: dict[str, str | None]) -> bool:
    if arguments.since is not None and stored.letter.dead_at < arguments.since:
        return False
    asked = ((name, getattr(arguments, name)) for name in ("reason", "unit", "state"))
    return all(value is None or facts[name] == value for name, value in asked)


def _lines(stored: StoredDeadLetter, history: list[Action]) -> Iterator[str]:
    record = stored.letter.record
    yield printable(f"number: {stored.number}")
    yield printable(f"unit: {stored.unit or '-'}")
    yield f"state: {state_after(history, SystemClock().now())}"
    yield from (printable(_action_text(action)) for action in history)
    if record.key is not None:
        yield f"key: {_on_a_line(record.key)}"
    yield from (f"header {printable(name)}: {_on_a_line(value)}" for name, value in stored.headers)
    cut = f", the beginning of {record.cut.length}" if record.cut else ""
    if record.value is None:
        yield "no value (null)"
        return
    text = find_text(record.value)
    yield f"value, {len(record.value)} bytes{cut}:" if text is not None else f"value, {len(record.value)} bytes{cut}, in base64:"
    yield base64.b64encode(record.value).decode() if text is None else text


def _action_text(action: Action) -> str:
    what = f"{action.state} at {action.at} by {action.by}"
    if isinstance(action, Requeued):
        what = f"{what}: {action.position}"
    if isinstance(action, Edited):
        proposed = "" if action.proposed_by is None else f", proposed by {action.proposed_by}"
        what = f"{what}{proposed}, SHA-256 {action.original_sha256} to {action.edited_sha256}"
    return f"{what}: {action.because}" if isinstance(action, Edited | Discarded | EditProposed | EditRejected) else what


def _everything(stored: StoredDeadLetter, history: list[Action]) -> dict[str, Any]:
    record = stored.letter.record
    return {
        **_facts(stored, state_after(history, SystemClock().now())),
        "actions": [msgspec.to_builtins(action) for action in history],
        **(_as_json("key", record.key) if record.key is not None else {}),
        "headers": [{"name": name, **_as_json("value", value)} for name, value in stored.headers],
        **({"value": None} if record.value is None else _as_json("value", record.value)),
    }


def _as_json(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _on_a_line(value: bytes) -> str:
    try:
        return printable(value.decode())
    except UnicodeDecodeError:
        return f"{base64.b64encode(value).decode()} (base64)"


class ValueUnreadable(ResequencerError):
    """The file with the edited value cannot be read."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(f"{file} cannot be read: {error.strerror or error}")


def requeue(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Requeue dead letters in the order in which they were made, however they are named.

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

    def find_flaw_of(dead_letter: StoredDeadLetter) -> str | None:
        flaw = None if arguments.anyway else find_flaw(dead_letter, decoder.decode)
        return flaw and f"{flaw}; {_remedy(flaw, configuration.ingress.events.format)}"

    edited = Edit(_read(arguments.value), arguments.because)
    if EDIT in configuration.http.approval:
        again, anyway = arguments.again, arguments.anyway
        proposed = decisions.propose_edit(store, arguments.number, edited, find_flaw_of, again=again, anyway=anyway)
        return _report(arguments, store, proposed, "proposed (another person has to approve it in the console: http.approval)")
    outcomes = decisions.edit(store, arguments.number, edited, find_flaw_of, again=arguments.again)
    return _report(arguments, store, outcomes, "edited")


_OUTSIDE_THE_VALUE = re.compile(r"it would be a dead letter again, [a-z-]+: (\w+) \(((?:header:|key).*?)\) (?:is|has|contains) ")


def _remedy(flaw: str, events_format: str) -> str:
    """Return what to do about a flaw of an edited value. It may be in a header or the key, which an edit does not change."""
    anyway = "use --anyway to send it all the same"
    found = _OUTSIDE_THE_VALUE.match(flaw)
    if found is not None:
        where = f"edit changes the value alone, and {found[1]} comes from {found[2]}"
        return f"{where}: append a corrected record to the input and discard this one"
    if events_format == IPF:
        return anyway
    return f"edit changes the value alone: if headers or key are wrong, append a corrected record and discard this one; {anyway}"


def discard(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Record that no action is needed on dead letters, with the person and the reason. Raises as `requeue`."""
    return _report(arguments, store, decisions.discard(store, arguments.numbers, arguments.because), "done")


def _report(arguments: Namespace, store: DeadLetterStore, outcomes: Iterable[Outcome], done: str) -> ExitCode:
    failed = 0
    with DeadLetterReport(as_json=arguments.json) as report:
        for each in outcomes:
            failed += each.problem is not None
            report.tell(*_outcome_text(each))
        say(f"{report.count - failed} {done}, {failed} not; read {store.where}")
    return ExitCode.FAILED if failed else ExitCode.DONE


def _outcome_text(outcome: Outcome) -> tuple[str, dict[str, str]]:
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
    say(usage)
    return ExitCode.USAGE


def dead_letters(arguments: Namespace) -> ExitCode:
    """Run one subcommand. Exit code 0 only if every named dead letter exists and was processed."""
    with closing(open_store(load_for(arguments), _asked_for(arguments))) as store:
        code: ExitCode = arguments.run_subcommand(arguments, store)
    return code


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of each subcommand."""
    add_subcommands(
        parser,
        Subcommand("list", "one line per dead letter, with its state", _add_list, list_dead_letters),
        Subcommand("show", "one dead letter with its exact headers and value", _add_show, show_dead_letter),
        Subcommand("requeue", "put the records back to where they are read again, each once", _add_requeue, requeue),
        Subcommand("edit", "put one record back with a corrected value", _add_edit, edit),
        Subcommand("discard", "mark dead letters as needing no action; nothing is deleted", _add_discard, discard),
        is_required=True,
    )


def _asked_for(arguments: Namespace) -> AskedFor:
    """Add the ways to select dead letters: by numbers, by an instant, by reason, or all. A subcommand takes some of these."""
    one = getattr(arguments, "number", None)
    numbers = tuple(getattr(arguments, "numbers", ())) or ((one,) if one else ())
    return AskedFor(getattr(arguments, "since", None), numbers, getattr(arguments, "receiver", None))


def _add_receiver(parser: ArgumentParser) -> None:
    what = "those that could not be delivered to this receiver straight from its topic; by default the service's own"
    parser.add_argument("--receiver", metavar="NAME", help=what)


def _add_list(parser: ArgumentParser) -> None:
    _add_receiver(parser)
    states = [NEW, *(action.state for action in (Requeueing, Requeued, Editing, Edited, EditProposed, Discarded))]
    parser.add_argument("--reason", choices=[reason.value for reason in DeadLetterReason], help="only those of this reason")
    parser.add_argument("--unit", help="only those of this unit of work")
    parser.add_argument("--since", type=instant, metavar="INSTANT", help="only those from this instant on: 2026-03-28T23:33Z")
    parser.add_argument("--state", choices=states, help="only those in this state")


def _add_show(parser: ArgumentParser) -> None:
    parser.add_argument("number", metavar="NUMBER", help="the number that `list` shows: IPF_PROCESSING_DATA-0#17")
    parser.add_argument("--raw", action="store_true", help="print the value's bytes and nothing else")


def _add_requeue(parser: ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="the numbers that `list` shows")
    parser.add_argument(
        "--reason", choices=[reason.value for reason in DeadLetterReason], help="all new dead letters of this reason"
    )
    parser.add_argument("--all", action="store_true", help="all new dead letters")
    _add_receiver(parser)
    parser.add_argument("--again", action="store_true", help="also those that were requeued, edited or discarded before")


def _add_edit(parser: ArgumentParser) -> None:
    parser.add_argument("number", metavar="NUMBER", help="the number that `list` shows")
    what = "the whole corrected value, exact to the byte; - reads the standard input. `show --raw` prints the one to start from"
    parser.add_argument("--value", required=True, type=Path, metavar="FILE", help=what)
    parser.add_argument("--because", required=True, type=_reason, metavar="TEXT", help="the reason; it is stored with your name")
    parser.add_argument("--anyway", action="store_true", help="also if it would be a dead letter again, or is of another unit")
    parser.add_argument("--again", action="store_true", help="also if it was requeued, edited or discarded before")


def _add_discard(parser: ArgumentParser) -> None:
    parser.add_argument("numbers", nargs="+", metavar="NUMBER", help="the numbers that `list` shows")
    parser.add_argument("--because", required=True, type=_reason, metavar="TEXT", help="the reason; it is stored with your name")


def _reason(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("say why")
    return text
