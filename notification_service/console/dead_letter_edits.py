"""Editing a dead letter and sending it again, and the approval of a second person where `http.approval` asks for one."""

from collections.abc import Iterator

from starlette.requests import Request

from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters.edited_value import find_flaw
from notification_service.connectors.dead_letters.port import DeadLetterStore, Outcome
from notification_service.connectors.dead_letters.stored_dead_letter import Edit, StoredDeadLetter
from notification_service.console.context import Console
from notification_service.console.settings import EDIT
from resequencer.order import Stage


def needs_approval(console: Console) -> bool:
    """Whether an edit is only proposed, and sent when a second person approves it."""
    return EDIT in console.settings.approval


def note_edit(console: Console, request: Request, number: str, edited: Edit) -> None:
    """Write the edit, or its proposal, to the audit log."""
    stage = {"stage": Stage.PROPOSED.value} if needs_approval(console) else {}
    details = {"number": number, "because": edited.because, "sha256": edited.sha256}
    console.audit_log.note(request, "dead-letter.edit", **details, **stage)


def edit(console: Console, store: DeadLetterStore, number: str, edited: Edit, *, again: bool, anyway: bool) -> Iterator[Outcome]:
    """Send the edited letter, or propose it. With `anyway` flaws are let pass."""
    flaw: decisions.FindFlaw = (lambda _: None) if anyway else (lambda letter: _find_flaw(console, letter))
    if needs_approval(console):
        return decisions.propose_edit(store, number, edited, flaw, again=again, anyway=anyway)
    return decisions.edit(store, number, edited, flaw, again=again)


def approve(console: Console, store: DeadLetterStore, number: str, sha256: str, by: str) -> Iterator[Outcome]:
    """Send the letter with the value that another person proposed. `sha256` is that of the value that is approved."""
    approval = decisions.Approval(by, sha256, console.sources.clock.now())
    return decisions.approve_edit(store, number, approval, lambda letter: _find_flaw(console, letter))


def _find_flaw(console: Console, letter: StoredDeadLetter) -> str | None:
    return find_flaw(letter, console.sources.codec.decode)
