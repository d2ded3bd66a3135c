"""Dead letters, as pages and operations of the API: the list, one of them, its value, and what is decided about them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.connectors.dead_letters import decisions
from notification_service.connectors.dead_letters.actions import (
    NEW,
    Action,
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
from notification_service.console.dead_letters import (
    MAX_SHOWN,
    Filter,
    OneDeadLetter,
    Row,
    error_for,
    find_letter,
    list_for,
    list_letters,
    matching_numbers,
    open_letters,
)
from notification_service.console.operation import Operation, answer_of, change_of
from notification_service.console.settings import EDIT
from notification_service.events.identifiers import shown
from resequencer.clock import instant_text
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


State = Literal["new", "requeueing", "requeued", "editing", "edited", "edit-proposed", "discarded"]
Number = Annotated[str, Meta(min_length=1, max_length=1_000)]
Because = Annotated[str, Meta(min_length=1, max_length=1_000)]


class LettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters to list: all that is given must hold. At most `limit` of them, the last ones.

    With `receiver` those that could not be delivered to it straight from its topic, else those of the service itself.
    """

    reason: DeadLetterReason | None = None
    unit: str | None = None
    state: State | None = None
    receiver: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_SHOWN)] = 50


class ListedDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter. `state` is `new`, or that of the last action; `position` is the record's in the input."""

    number: str
    state: str
    reason: str
    unit: str | None
    position: str
    at: str
    error: str


class DeadLettersAnswer(msgspec.Struct, frozen=True):
    """The last dead letters that match, the newest first; how many match; and all by state, and new ones by reason."""

    dead_letters: tuple[ListedDeadLetter, ...]
    matching: int
    by_state: dict[str, int]
    new_by_reason: dict[str, int]
    where: str


class OneLetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number, such as `EVENTS-0#17`; in a URL `#` is `%23`."""

    number: Number


class Done(msgspec.Struct, frozen=True):
    """An action on a dead letter: the state that it led to, by whom, when and why, and the position of a requeued record."""

    state: str
    by: str
    at: str
    because: str | None
    position: str | None


class ProposedEdit(msgspec.Struct, frozen=True):
    """An edit that waits for a second person, without its value, which is payment data."""

    by: str
    at: str
    because: str
    value_bytes: int
    sha256: str
    anyway: bool


class DeadLetterAnswer(ListedDeadLetter, frozen=True):
    """A dead letter without its value, which is payment data. `history` has the oldest action first.

    `value_bytes` is the length of the value that is stored, `original_bytes` that of the whole one; they differ if it was cut.
    """

    value_bytes: int
    original_bytes: int
    sha256: str
    history: tuple[Done, ...]
    proposal: ProposedEdit | None


class Matching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All dead letters that match. It is refused if there are not `count` of them any more."""

    count: Annotated[int, Meta(ge=1)]
    reason: DeadLetterReason | None = None
    unit: str | None = None
    state: State | None = None
    receiver: str | None = None


class Requeue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dead letters with these `numbers`, or all that match. With `again` also those that were decided before."""

    numbers: Annotated[tuple[Number, ...], Meta(max_length=10_000)] = ()
    matching: Matching | None = None
    again: bool = False


class Discard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dead letters with these `numbers`, or all that match. The reason `because` is kept with the user's name."""

    because: Because
    numbers: Annotated[tuple[Number, ...], Meta(max_length=10_000)] = ()
    matching: Matching | None = None


class EditAndSend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole corrected value (sent as UTF-8). With `anyway` also if it would be a dead letter again."""

    number: Number
    value: str
    because: Because
    again: bool = False
    anyway: bool = False


class ApproveEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dead letter, and the SHA-256 (in hexadecimal) of the proposed value that is approved."""

    number: Number
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class RejectEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The dead letter whose proposed edit is rejected or taken back, and why."""

    number: Number
    because: Because


class OutcomeAnswer(msgspec.Struct, frozen=True):
    """What became of one dead letter: `done` is its state now, null if a problem prevented it."""

    number: str
    done: str | None
    position: str | None
    problem: str | None


class OutcomesAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcomes by dead letter, also of interrupted requeues that were completed. With problems the status is 409."""

    outcomes: tuple[OutcomeAnswer, ...]
    error: str | None = None


def dead_letter_operations(console: Console) -> list[Operation]:
    reads, decides = _Reading(console), _Deciding(console)
    return [
        Operation("/dead-letters", "dead-letters", reads.several, DeadLettersAnswer, "The dead letters", LettersQuery),
        Operation(
            "/dead-letter", "dead-letter", reads.one, DeadLetterAnswer, "One dead letter, without its value", OneLetterQuery
        ),
        Operation(
            "/dead-letter/value",
            "dead-letter-value",
            reads.value,
            "application/octet-stream",
            "The exact bytes of its value; the look is noted",
            OneLetterQuery,
            needs=Role.PAYMENTS,
        ),
        change_of("/dead-letters/requeue", "requeue", decides.requeue, OutcomesAnswer, "Send them again, each once", Requeue),
        change_of("/dead-letters/discard", "discard", decides.discard, OutcomesAnswer, "Decide to do nothing", Discard),
        Operation(
            "/dead-letter/proposed-value",
            "dead-letter-proposed-value",
            reads.proposed_value,
            "application/octet-stream",
            "The exact bytes of the proposed value; the look is noted",
            OneLetterQuery,
            needs=Role.PAYMENTS,
        ),
        change_of("/dead-letter/edit", "edit", decides.edit, OutcomesAnswer, "Send or propose one, corrected", EditAndSend),
        change_of("/dead-letter/edit/approve", "approve-edit", decides.approve, OutcomesAnswer, "Approve an edit", ApproveEdit),
        change_of("/dead-letter/edit/reject", "reject-edit", decides.reject, OutcomesAnswer, "Reject an edit", RejectEdit),
    ]


class _Reading:
    def __init__(self, console: Console) -> None:
        self._console = console

    def several(self, request: Request, query: LettersQuery) -> DeadLettersAnswer:
        wanted = Filter(query.reason, query.unit, query.state, query.receiver)
        with open_letters(self._console.sources, identity_of(request), receiver=wanted.receiver) as store:
            found = list_for(identity_of(request), list_letters(store, wanted, self._console.sources.clock.now()))
        listed = tuple(map(_listed, found.rows[: query.limit]))
        return DeadLettersAnswer(listed, found.matching, dict(found.by_state), dict(found.new_by_reason), found.where)

    def one(self, request: Request, query: OneLetterQuery) -> DeadLetterAnswer:
        one = self._get(request, query.number)
        letter, record = one.stored.letter, one.stored.letter.record
        return DeadLetterAnswer(
            one.stored.number,
            one.state,
            letter.reason.value,
            one.stored.unit,
            str(record.origin),
            instant_text(letter.dead_at),
            error_for(identity_of(request), letter.reason.value, letter.error),
            len(record.value),
            record.cut.length if record.cut else len(record.value),
            one.stored.sha256,
            tuple(map(_done, one.history)),
            _proposed(one.proposal),
        )

    def value(self, request: Request, query: OneLetterQuery) -> Response:
        self._console.audit_log.note(request, "dead-letter.value", number=query.number)
        return Response(self._get(request, query.number).stored.letter.record.value, media_type="application/octet-stream")

    def proposed_value(self, request: Request, query: OneLetterQuery) -> Response:
        self._console.audit_log.note(request, "dead-letter.proposed-value", number=query.number)
        proposal = self._get(request, query.number).proposal
        if proposal is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no edit of this dead letter is proposed")
        return Response(proposal.value, media_type="application/octet-stream")

    def _get(self, request: Request, number: str) -> OneDeadLetter:
        with open_letters(self._console.sources, identity_of(request), number) as store:
            found = find_letter(store, number, self._console.sources.clock.now())
            if found is None:
                raise HTTPException(HTTPStatus.NOT_FOUND, f"no dead letter has the number {shown(number)} in {store.where}")
            return found


class _Deciding:
    def __init__(self, console: Console) -> None:
        self._console = console

    def requeue(self, request: Request, body: Requeue) -> Response:
        self._note(request, "dead-letters.requeue", body)
        numbers = self._numbers(request, body)
        return self._carry_out(request, lambda store: decisions.requeue_named(store, numbers, again=body.again), *numbers)

    def discard(self, request: Request, body: Discard) -> Response:
        self._note(request, "dead-letters.discard", body, because=_reason(body.because))
        numbers = self._numbers(request, body)
        return self._carry_out(request, lambda store: decisions.discard(store, numbers, _reason(body.because)), *numbers)

    def edit(self, request: Request, body: EditAndSend) -> Response:
        edited = Edit(_bytes(body.value), _reason(body.because))
        note_edit(self._console, request, body.number, edited)
        return self._carry_out(
            request,
            lambda store: edit(self._console, store, body.number, edited, again=body.again, anyway=body.anyway),
            body.number,
        )

    def approve(self, request: Request, body: ApproveEdit) -> Response:
        by = identity_of(request).name
        self._console.audit_log.note(request, "dead-letter.edit.approve", number=body.number, sha256=body.sha256)
        return self._carry_out(request, lambda store: approve(self._console, store, body.number, body.sha256, by), body.number)

    def reject(self, request: Request, body: RejectEdit) -> Response:
        because = _reason(body.because)
        self._console.audit_log.note(request, "dead-letter.edit.reject", number=body.number, because=because)
        return self._carry_out(request, lambda store: decisions.reject_edit(store, body.number, because), body.number)

    def _note(self, request: Request, action: str, body: Requeue | Discard, **details: str) -> None:
        matching = msgspec.to_builtins(body.matching) if body.matching else {}
        named = ", ".join(body.numbers) or None
        self._console.audit_log.note(request, action, **details, number=named, **matching)

    def _numbers(self, request: Request, body: Requeue | Discard) -> Sequence[str]:
        if (body.matching is None) is (not body.numbers):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "give either numbers or matching")
        wanted = body.matching
        if wanted is None:
            return body.numbers
        asked = Filter(wanted.reason, wanted.unit, wanted.state, wanted.receiver)
        with open_letters(self._console.sources, identity_of(request), receiver=wanted.receiver) as store:
            numbers = matching_numbers(store, asked, self._console.sources.clock.now())
        if len(numbers) != wanted.count:
            raise HTTPException(HTTPStatus.CONFLICT, f"{len(numbers)} match now, and count is {wanted.count}; look again")
        return numbers

    def _carry_out(self, request: Request, decide: Callable[[DeadLetterStore], Iterator[Outcome]], *numbers: str) -> Response:
        with open_letters(self._console.sources, identity_of(request), *numbers) as store:
            return _outcomes(decide(store))


def _outcomes(outcomes: Iterable[Outcome]) -> Response:
    told = tuple(map(_outcome, outcomes))
    failed = [each for each in told if each.problem is not None]
    if not failed:
        return answer_of(OutcomesAnswer(told))
    error = f"{len(failed)} of {len(told)} not done; {failed[0].number}: {failed[0].problem}"
    return answer_of(OutcomesAnswer(told, error), HTTPStatus.CONFLICT)


def _outcome(outcome: Outcome) -> OutcomeAnswer:
    done = None if outcome.problem else outcome.done
    return OutcomeAnswer(outcome.number, done, outcome.position, outcome.problem)


def _listed(row: Row) -> ListedDeadLetter:
    return ListedDeadLetter(row.number, row.state, row.reason, row.unit, row.position, instant_text(row.dead_at), row.error)


def _done(action: Action) -> Done:
    because, position = getattr(action, "because", None), getattr(action, "position", None)
    return Done(action.state, action.by, action.at, because, position)


def _proposed(proposal: EditProposed | None) -> ProposedEdit | None:
    if proposal is None:
        return None
    return ProposedEdit(proposal.by, proposal.at, proposal.because, len(proposal.value), proposal.sha256, proposal.anyway)


def _reason(because: str) -> str:
    reason = because.strip()
    if not reason:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "because is empty; a reason is expected, and kept with your name")
    return reason


def _bytes(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"value is no text: {error.reason}") from error
