"""`dead-letters list` and `show`: they write nothing, and a service may be running."""

import base64
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import msgspec

from notification_service.commands.dead_letters.report import DeadLetterReport
from notification_service.connectors.dead_letters.actions import (
    NEW,
    Action,
    Discarded,
    Edited,
    Editing,
    EditProposed,
    EditRejected,
    Requeued,
    state_after,
)
from notification_service.connectors.dead_letters.port import DeadLetterStore, last_actions
from notification_service.connectors.dead_letters.stored_dead_letter import StoredDeadLetter
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import counted, printable


class DeadLetterUnknown(ResequencerError):
    """No dead letter has this number."""

    def __init__(self, number: str, where: str) -> None:
        super().__init__(f"{number}: no dead letter has this number in {where}")


def list_letters(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Print one line or JSON object per dead letter, in the order in which they were set aside.

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
    sys.stderr.write(f"resequencer: {counted(report.count, 'dead letter')} of {store.where}\n")
    return ExitCode.DONE


def show_letter(arguments: Namespace, store: DeadLetterStore) -> ExitCode:
    """Print one dead letter with all details, or only the bytes of its value.

    Raises:
        DeadLetterUnknown: There is no such number.
    """
    stored = next((each for each in store.letters() if each.number == arguments.number), None)
    if stored is None:
        raise DeadLetterUnknown(arguments.number, store.where)
    if arguments.raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(stored.letter.record.value)
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
    letter = stored.letter
    return {
        "number": stored.number,
        "state": state,
        "reason": letter.reason.value,
        "unit": stored.unit,
        "source_position": str(letter.record.origin),
        "at": instant_text(letter.dead_at),
        "error": letter.error,
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
    yield from (printable(_told(action)) for action in history)
    if record.key is not None:
        yield f"key: {_on_a_line(record.key)}"
    yield from (f"header {printable(name)}: {_on_a_line(value)}" for name, value in stored.headers)
    cut = f", the beginning of {record.cut.length}" if record.cut else ""
    text = _find_safe_text(record.value)
    yield f"value, {len(record.value)} bytes{cut}:" if text is not None else f"value, {len(record.value)} bytes{cut}, in base64:"
    yield base64.b64encode(record.value).decode() if text is None else text


def _told(action: Action) -> str:
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
        **_as_json("value", record.value),
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


def _find_safe_text(value: bytes) -> str | None:
    """Return the value as text; None if the text would not be its exact bytes, or could control a terminal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None
