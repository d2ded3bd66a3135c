"""Dead letters: the list, one of them in full, and what a person decides about them."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters.actions import (
    NEW,
    Discarded,
    Edit,
    Edited,
    EditProposed,
    Requeued,
    StoredDeadLetter,
)
from notification_service.connectors.dead_letters.port import DeadLetterStore, Outcome, find_flaw
from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console, identity_of
from notification_service.console.dead_letters.listing import (
    Filter,
    OneDeadLetter,
    find_letter,
    list_letters,
    matching_numbers,
    open_letters,
)
from notification_service.console.masking import error_for, list_for
from notification_service.console.settings import EDIT
from resequencer.dead_letter import DeadLetterReason
from resequencer.order import Stage, is_same_person


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


STATES = (NEW, Requeued.state, Edited.state, EditProposed.state, Discarded.state)
_LONGEST_REASON = 1_000


def dead_letter_routes(console: Console) -> list[Route]:
    pages = _DeadLetterPages(console)
    return [
        route("/dead-letters", pages.overview, name="dead-letters"),
        route("/dead-letters/confirm", pages.confirm, needs=Role.OPERATOR, name="confirm-dead-letters"),
        route("/dead-letters/decide", pages.decide, needs=Role.OPERATOR, name="decide-dead-letters", tokens=console.tokens),
        route("/dead-letter", pages.show, name="dead-letter"),
        route("/dead-letter/value", pages.value, needs=Role.PAYMENTS, name="dead-letter-value"),
        route("/dead-letter/proposed-value", pages.proposed_value, needs=Role.PAYMENTS, name="proposed-value"),
        route("/dead-letter/edit", pages.edit, needs=Role.OPERATOR, name="edit-dead-letter", tokens=console.tokens),
        route("/dead-letter/edit/approve", pages.approve, needs=Role.OPERATOR, name="approve-edit", tokens=console.tokens),
        route("/dead-letter/edit/reject", pages.reject, needs=Role.OPERATOR, name="reject-edit", tokens=console.tokens),
    ]


class _DeadLetterPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def overview(self, request: Request) -> Response:
        wanted = _filter(request.query_params)
        with open_letters(self._console.sources, identity_of(request), receiver=wanted.receiver) as store:
            found = list_for(identity_of(request), list_letters(store, wanted, self._console.sources.clock.now()))
        return self._console.page(
            request,
            "dead_letters.html",
            found=found,
            wanted=wanted,
            reasons=[each.value for each in DeadLetterReason],
            states=STATES,
            receivers=self._console.sources.direct_receivers,
            parameters=wanted.given,
        )

    def show(self, request: Request) -> Response:
        number = request.query_params.get("number", "")
        with open_letters(self._console.sources, identity_of(request), number) as store:
            one = _get(find_letter(store, number, self._console.sources.clock.now()), number, store)
        identity, letter = identity_of(request), one.stored.letter
        error = error_for(identity, letter.reason.value, letter.error)
        proposal = one.proposal
        return self._console.page(
            request,
            "dead_letter.html",
            one=one,
            error=error,
            may_see=identity.may(Role.PAYMENTS),
            proposal=proposal,
            is_own=proposal is not None and is_same_person(proposal.by, identity.name),
            needs_approval=needs_approval(self._console),
        )

    def value(self, request: Request) -> Response:
        """The exact bytes, as a file to save: no browser renders them."""
        number = request.query_params.get("number", "")
        self._console.audit_log.note(request, "dead-letter.value", number=number)
        with open_letters(self._console.sources, identity_of(request), number) as store:
            one = _get(find_letter(store, number, self._console.sources.clock.now()), number, store)
        return _saved(one.stored.letter.record.value, "dead-letter-value")

    def proposed_value(self, request: Request) -> Response:
        """The exact bytes that a person proposed, as a file to save."""
        number = request.query_params.get("number", "")
        self._console.audit_log.note(request, "dead-letter.proposed-value", number=number)
        with open_letters(self._console.sources, identity_of(request), number) as store:
            proposal = _get(find_letter(store, number, self._console.sources.clock.now()), number, store).proposal
        if proposal is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no edit of this dead letter is proposed")
        return _saved(proposal.value, "proposed-value")

    def confirm(self, request: Request) -> Response:
        """Ask before something is done to all that a filter shows: how many, and which."""
        wanted, action = _filter(request.query_params), request.query_params.get("action", "")
        with open_letters(self._console.sources, identity_of(request), receiver=wanted.receiver) as store:
            found = list_for(identity_of(request), list_letters(store, wanted, self._console.sources.clock.now()))
        return self._console.page(request, "confirm_dead_letters.html", found=found, wanted=wanted, action=_known(action))

    def decide(self, request: Request) -> Response:
        """Requeue or discard one dead letter, or all that a filter matches. Of a filter the count must still be the same."""
        form = request.state.form
        action, because = _known(form.get("action", "")), form.get("because", "").strip()[:_LONGEST_REASON]
        if action == "discard" and not because:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "say why they are discarded; the reason is kept with your name")
        wanted = Filter(*(form.get(name) or None for name in Filter._fields))
        named = form.get("number")
        self._console.audit_log.note(request, f"dead-letters.{action}", number=named, because=because or None, **wanted.given)
        sources, identity = self._console.sources, identity_of(request)
        numbers = [named] if named else self._matching(request, wanted)
        with open_letters(sources, identity, *numbers) as store:
            if action == "requeue":
                outcomes = decisions.requeue_named(store, numbers, again=form.get("again") == "yes")
            else:
                outcomes = decisions.discard(store, numbers, because)
            return self._told(request, outcomes)

    def edit(self, request: Request) -> Response:
        """Requeue one dead letter with a corrected value."""
        form, identity = request.state.form, identity_of(request)
        number, because = form.get("number", ""), form.get("because", "").strip()[:_LONGEST_REASON]
        if not because:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "say why it is edited; the reason is kept with your name")
        # A browser sends each end of line as CR LF, whatever was typed.
        edited = Edit(form.get("value", "").replace("\r\n", "\n").encode(), because)
        note_edit(self._console, request, number, edited)
        again, anyway = form.get("again") == "yes", form.get("anyway") == "yes"
        with open_letters(self._console.sources, identity, number) as store:
            return self._told(request, edit(self._console, store, number, edited, again=again, anyway=anyway))

    def approve(self, request: Request) -> Response:
        """Send the value that another person proposed."""
        form, identity = request.state.form, identity_of(request)
        number, sha256 = form.get("number", ""), form.get("sha256", "")
        self._console.audit_log.note(request, "dead-letter.edit.approve", number=number, sha256=sha256)
        with open_letters(self._console.sources, identity, number) as store:
            return self._told(request, approve(self._console, store, number, sha256, identity.name))

    def reject(self, request: Request) -> Response:
        form = request.state.form
        number, because = form.get("number", ""), form.get("because", "").strip()[:_LONGEST_REASON]
        self._console.audit_log.note(request, "dead-letter.edit.reject", number=number, because=because or None)
        with open_letters(self._console.sources, identity_of(request), number) as store:
            return self._told(request, decisions.reject_edit(store, number, because or "no reason was given"))

    def _matching(self, request: Request, wanted: Filter) -> list[str]:
        with open_letters(self._console.sources, identity_of(request), receiver=wanted.receiver) as store:
            numbers = matching_numbers(store, wanted, self._console.sources.clock.now())
        if str(len(numbers)) != request.state.form.get("count"):
            raise HTTPException(HTTPStatus.CONFLICT, f"there are {len(numbers)} now, not as many as you confirmed; look again")
        return numbers

    def _told(self, request: Request, outcomes: Iterable[Outcome]) -> Response:
        told = tuple(outcomes)
        status = HTTPStatus.OK if all(each.problem is None for each in told) else HTTPStatus.CONFLICT
        return self._console.page(request, "dead_letter_outcomes.html", status, outcomes=told)


def _saved(value: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(value, media_type="application/octet-stream", headers=headers)


def _filter(parameters: QueryParams) -> Filter:
    return Filter(*(parameters.get(name) or None for name in Filter._fields))


def _known(action: str) -> str:
    if action not in ("requeue", "discard"):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the action is requeue or discard")
    return action


def _get(found: OneDeadLetter | None, number: str, store: DeadLetterStore) -> OneDeadLetter:
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"no dead letter has the number {number!r} in {store.where}")
    return found
