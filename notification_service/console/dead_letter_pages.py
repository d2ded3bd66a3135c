"""Dead letters, as pages and operations of the API: the list, one of them, its value, and what is decided about them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
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
from notification_service.connectors.dead_letters.shown_value import editable_text, shown_value
from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route
from notification_service.console.access.settings import EDIT
from notification_service.console.context import (
    MAX_REASON,
    Because,
    Console,
    Operation,
    Taken,
    answer_of,
    change_of,
    form_route,
    identity_of,
    known_parameters,
    read_choice,
    read_form,
    read_page_number,
    reason_of,
)
from notification_service.console.csv_files import csv_answer, time_cell
from notification_service.console.dead_letters import (
    MAX_SHOWN,
    DeadLetterAnswer,
    DeadLetterList,
    DeadLettersAnswer,
    Filter,
    OneDeadLetter,
    OutcomesAnswer,
    all_rows,
    answer_about,
    error_for,
    find_dead_letter,
    list_dead_letters,
    list_for,
    listed_answer,
    matching_numbers,
    open_dead_letters_for,
    outcome_answer,
    short_number,
)
from notification_service.events.identifiers import shown
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ResequencerError
from resequencer.event import FIRST_FORMAT
from resequencer.order import Stage, is_same_person
from resequencer.printable import find_text, printable

_BYTES = "application/octet-stream"
_ACTIONS = ("requeue", "discard")
STATES = (NEW, Requeued.state, Edited.state, EditProposed.state, Discarded.state)


State = Literal["new", "requeueing", "requeued", "editing", "edited", "edit-proposed", "discarded"]
Number = Annotated[str, Meta(min_length=1, max_length=1_000)]


class LettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters to list: all that is given must hold. At most `limit` of them, the last ones.

    With `receiver` those that could not be delivered to it straight from its topic, else those of the service itself.
    """

    reason: DeadLetterReason | None = None
    unit: str | None = None
    state: State | None = None
    receiver: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_SHOWN)] = 50


class OneLetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number, such as `EVENTS-0#17`; in a URL `#` is `%23`."""

    number: Number


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


class Typed(NamedTuple):
    """What the form of an edit holds: the value as it is or as a person wrote it, the reason, and why it was refused."""

    value: str
    because: str = ""
    problem: str | None = None
    again: bool = False
    anyway: bool = False


class _DeadLetters:
    """What pages and operations do with dead letters, in the name of the person who asks."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @property
    def needs_approval(self) -> bool:
        """Whether an edit is only proposed, and sent when a second person approves it."""
        return EDIT in self._console.settings.approval

    def list(self, request: Request, wanted: Filter, limit: int = MAX_SHOWN) -> DeadLetterList:
        with self._opened(request, receiver=wanted.receiver) as store:
            return list_for(
                identity_of(request), list_dead_letters(store, wanted, self._console.sources.clock.now(), limit=limit)
            )

    def rows(self, request: Request, wanted: Filter) -> Iterator[Sequence[object]]:
        """Yield the cells of all that match, the oldest first, with the errors that this person may see."""
        identity = identity_of(request)
        with self._opened(request, receiver=wanted.receiver) as store:
            for each in all_rows(store, wanted, self._console.sources.clock.now()):
                error = error_for(identity, each.reason, each.error)
                yield each.number, each.state, each.reason, each.unit, time_cell(each.dead_at), each.position, error

    def list_marked(self, request: Request, numbers: Sequence[str]) -> DeadLetterList:
        """Return those of these numbers that are there."""
        with self._opened(request, *numbers) as store:
            found = list_dead_letters(store, Filter(), self._console.sources.clock.now(), frozenset(numbers))
            return list_for(identity_of(request), found)

    def get(self, request: Request, number: str) -> OneDeadLetter:
        """Return the dead letter; an answer 404 if there is none of this number."""
        with self._opened(request, number) as store:
            found = find_dead_letter(store, number, self._console.sources.clock.now())
            if found is None:
                raise HTTPException(HTTPStatus.NOT_FOUND, f"no dead letter has the number {shown(number)} in {store.where}")
            return found

    def value(self, request: Request, number: str) -> bytes:
        """Return the exact bytes of the value; the look is noted."""
        return self.look(request, number).stored.letter.record.content

    def look(self, request: Request, number: str) -> OneDeadLetter:
        """As `get`, to see the value and the headers; the look is noted."""
        self._console.audit_log.note(request, "dead-letter.value", number=number)
        return self.get(request, number)

    def proposed_value(self, request: Request, number: str) -> bytes:
        """Return the exact bytes that a person proposed; the look is noted."""
        self._console.audit_log.note(request, "dead-letter.proposed-value", number=number)
        proposal = self.get(request, number).proposal
        if proposal is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "no edit of this dead letter is proposed")
        return proposal.value

    def matching(self, request: Request, wanted: Filter, count: str) -> Sequence[str]:
        """Return the numbers of all that match; an answer 409 if there are not `count` of them any more."""
        with self._opened(request, receiver=wanted.receiver) as store:
            numbers = matching_numbers(store, wanted, self._console.sources.clock.now())
        if str(len(numbers)) != count:
            raise HTTPException(HTTPStatus.CONFLICT, f"{len(numbers)} match now, and count is {printable(count)}; look again")
        return numbers

    def noted(self, request: Request, action: str, body: Requeue | Discard, **details: str) -> Sequence[str]:
        """Note what is to be done, and return the numbers of which dead letters."""
        matching = msgspec.to_builtins(body.matching) if body.matching else {}
        named = ", ".join(body.numbers) or None
        self._console.audit_log.note(request, f"dead-letters.{action}", **details, number=named, **matching)
        if (body.matching is None) is (not body.numbers):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "give either numbers or matching")
        wanted = body.matching
        if wanted is None:
            return body.numbers
        return self.matching(request, Filter(wanted.reason, wanted.unit, wanted.state, wanted.receiver), str(wanted.count))

    def requeue(self, request: Request, numbers: Sequence[str], *, again: bool) -> tuple[Outcome, ...]:
        return self._decide(request, lambda store: decisions.requeue_named(store, numbers, again=again), *numbers)

    def discard(self, request: Request, numbers: Sequence[str], because: str) -> tuple[Outcome, ...]:
        return self._decide(request, lambda store: decisions.discard(store, numbers, because), *numbers)

    def edit(self, request: Request, body: EditAndSend) -> tuple[Outcome, ...]:
        """Send the edited dead letter, or propose it. With `anyway` flaws are let pass."""
        edited, number = Edit(_bytes(body.value), reason_of(body.because)), body.number
        details = {"number": number, "because": edited.because, "sha256": edited.sha256}
        stage = {"stage": Stage.PROPOSED.value} if self.needs_approval else {}
        self._console.audit_log.note(request, "dead-letter.edit", **details, **stage)

        def flaw(stored: StoredDeadLetter) -> str | None:
            if not self.can_be_typed(stored):
                return "its value is not text: give the corrected one in a file, with `resequencer dead-letters edit`"
            return None if body.anyway else self._find_flaw(stored)

        def decide(store: DeadLetterStore) -> Iterator[Outcome]:
            if self.needs_approval:
                return decisions.propose_edit(store, number, edited, flaw, again=body.again, anyway=body.anyway)
            return decisions.edit(store, number, edited, flaw, again=body.again)

        return self._decide(request, decide, number)

    def can_be_typed(self, stored: StoredDeadLetter) -> bool:
        """Whether a person can type the corrected value. Of other formats than the first, values may be binary."""
        value = stored.letter.record.value
        return self._console.sources.codec.events == FIRST_FORMAT or (value is not None and find_text(value) is not None)

    def edit_typed(self, request: Request, body: EditAndSend) -> tuple[Outcome, ...]:
        """As `edit`, for a form: a browser sends each end of line as CR LF, whatever was typed."""
        return self.edit(request, msgspec.structs.replace(body, value=body.value.replace("\r\n", "\n")))

    def approve(self, request: Request, body: ApproveEdit) -> tuple[Outcome, ...]:
        """Send the dead letter with the value that another person proposed."""
        self._console.audit_log.note(request, "dead-letter.edit.approve", number=body.number, sha256=body.sha256)
        approval = decisions.Approval(identity_of(request).name, body.sha256, self._console.sources.clock.now())
        number, flaw = body.number, self._find_flaw
        return self._decide(request, lambda store: decisions.approve_edit(store, number, approval, flaw), number)

    def reject(self, request: Request, body: RejectEdit) -> tuple[Outcome, ...]:
        """Reject the proposed edit, or take it back."""
        number, because = body.number, body.because.strip()[:MAX_REASON]
        self._console.audit_log.note(request, "dead-letter.edit.reject", number=number, because=because or None)
        reason = because or "no reason was given"
        return self._decide(request, lambda store: decisions.reject_edit(store, number, reason), number)

    def find_flaw(self, one: OneDeadLetter) -> str | None:
        """Return why the record would be a dead letter again if it is requeued unchanged, None if that is not certain."""
        return self._find_flaw(one.stored)

    def _find_flaw(self, stored: StoredDeadLetter) -> str | None:
        return find_flaw(stored, self._console.sources.codec.decode)

    def _decide(
        self, request: Request, decide: Callable[[DeadLetterStore], Iterator[Outcome]], *numbers: str
    ) -> tuple[Outcome, ...]:
        with self._opened(request, *numbers) as store:
            return tuple(decide(store))

    def _opened(self, request: Request, *numbers: str, receiver: str | None = None) -> closing[DeadLetterStore]:
        return open_dead_letters_for(self._console.sources, identity_of(request), *numbers, receiver=receiver)


_ROWS = 100
_COLUMNS = ("number", "state", "reason", "unit", "dead_since", "position", "error")


class _OnePage:
    """The page of one dead letter, and what its form for edits does."""

    def __init__(self, console: Console, ours: _DeadLetters) -> None:
        self._console = console
        self._ours = ours

    def show(self, request: Request) -> Response:
        number = request.query_params.get("number", "")
        if request.query_params.get("value") != "shown":
            return self._page(request, self._ours.get(request, number))
        if not identity_of(request).may(Role.PAYMENTS):
            raise HTTPException(HTTPStatus.FORBIDDEN, "seeing the value of a dead letter needs the role payments")
        return self._page(request, self._ours.look(request, number), is_shown=True)

    def edited(self, request: Request) -> Response:
        """Send or propose the edit. If it is refused, the page keeps what the person wrote, with the reason beside it."""
        body = read_form(request, EditAndSend)
        try:
            outcomes = self._ours.edit_typed(request, body)
            problem, status = next((each.problem for each in outcomes if each.number == body.number), None), HTTPStatus.CONFLICT
            if problem is None:
                return _outcomes_page(self._console, request, outcomes)
        except HTTPException as error:
            problem, status = error.detail, HTTPStatus(error.status_code)
        except ResequencerError as error:
            problem, status = str(error), HTTPStatus.SERVICE_UNAVAILABLE
        typed = Typed(body.value, body.because, problem, again=body.again, anyway=body.anyway)
        return self._page(request, self._ours.get(request, body.number), status, typed=typed)

    def _page(
        self, request: Request, one: OneDeadLetter, status: int = 200, *, is_shown: bool = False, typed: Typed | None = None
    ) -> Response:
        """With `is_shown` it has the value and the headers, for a person who may see them.

        `typed` is what a person wrote into the form, and why that was refused.
        """
        identity, dead_letter, proposal, ours = identity_of(request), one.stored.letter, one.proposal, self._ours
        record = dead_letter.record
        text = editable_text(record.content) if is_shown and record.cut is None else None
        return self._console.page(
            request,
            "dead_letter.html",
            status,
            one=one,
            error=error_for(identity, dead_letter.reason.value, dead_letter.error),
            may_see=identity.may(Role.PAYMENTS),
            proposal=proposal,
            is_own=proposal is not None and is_same_person(proposal.by, identity.name),
            needs_approval=ours.needs_approval,
            can_be_typed=ours.can_be_typed(one.stored),
            flaw=ours.find_flaw(one),
            value=shown_value(record.content) if is_shown else None,
            key=None if record.key is None else shown_value(record.key).text,
            headers=[(name, shown_value(each).text) for name, each in one.stored.headers],
            typed=typed or Typed(text or ""),
        )


def _outcomes_page(console: Console, request: Request, outcomes: tuple[Outcome, ...]) -> Response:
    status = HTTPStatus.OK if all(each.problem is None for each in outcomes) else HTTPStatus.CONFLICT
    return console.page(request, "dead_letter_outcomes.html", status, outcomes=outcomes)


def dead_letter_routes(console: Console) -> list[Route]:
    ours = _DeadLetters(console)
    one = _OnePage(console, ours)

    def overview(request: Request) -> Response:
        given = known_parameters(request, *Filter._fields, "page")
        wanted = _filter(given)
        page = read_page_number(given["page"], _ROWS, "/dead-letters", wanted.given)
        found = ours.list(request, wanted, page.end)
        return console.page(
            request,
            "dead_letters.html",
            found=found._replace(rows=found.rows[page.first - 1 :]),
            page=page,
            wanted=wanted,
            file=f"/dead-letters.csv?{urlencode(wanted.given)}",
            reasons=[each.value for each in DeadLetterReason],
            states=STATES,
            receivers=console.sources.direct_receivers,
            parameters=wanted.given,
            short=short_number if wanted.receiver is None else str,
        )

    def listed(request: Request) -> Response:
        wanted = _filter(known_parameters(request, *Filter._fields))
        return csv_answer("dead-letters", _COLUMNS, ours.rows(request, wanted))

    def saved(read: Callable[[Request, str], bytes], name: str) -> Callable[[Request], Response]:
        return lambda request: _saved(read(request, request.query_params.get("number", "")), name)

    def confirm(request: Request) -> Response:
        """Ask before something is done to those that are marked, or to all that a filter shows: how many, and which."""
        wanted, action = _filter(request.query_params), read_choice("action", request.query_params.get("action", ""), _ACTIONS)
        marked = list(dict.fromkeys(request.query_params.getlist("marked")))
        if "of-marked" in request.query_params and not marked:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "no dead letter is marked: go back and mark some")
        found = ours.list_marked(request, marked) if marked else ours.list(request, wanted)
        return console.page(request, "confirm_dead_letters.html", found=found, wanted=wanted, action=action, marked=bool(marked))

    def decide(request: Request) -> Response:
        """Requeue or discard one dead letter, several that are marked, or all that a filter matches.

        Of a filter the count must still be the same.
        """
        form = request.state.form
        action, because = read_choice("action", form.get("action", ""), _ACTIONS), form.get("because", "").strip()[:MAX_REASON]
        if action == "discard":
            reason_of(because)
        wanted, named = _filter(form), [value for name, value in request.state.fields if name == "number" and value]
        number = ", ".join(named) or None
        console.audit_log.note(request, f"dead-letters.{action}", number=number, because=because or None, **wanted.given)
        numbers = named or ours.matching(request, wanted, form.get("count", ""))
        if action == "discard":
            return outcomes_page(request, None, ours.discard(request, numbers, because))
        return outcomes_page(request, None, ours.requeue(request, numbers, again=form.get("again") == "yes"))

    def outcomes_page(request: Request, taken: object, outcomes: tuple[Outcome, ...]) -> Response:
        del taken
        return _outcomes_page(console, request, outcomes)

    value, proposed_value = saved(ours.value, "dead-letter-value"), saved(ours.proposed_value, "proposed-value")
    return [
        route("/dead-letters", overview, name="dead-letters"),
        route("/dead-letters.csv", listed, name="dead-letters-csv"),
        route("/dead-letters/confirm", confirm, needs=Role.OPERATOR, name="confirm-dead-letters"),
        route("/dead-letters/decide", decide, needs=Role.OPERATOR, name="decide-dead-letters", tokens=console.tokens),
        route("/dead-letter", one.show, name="dead-letter"),
        route("/dead-letter/value", value, needs=Role.PAYMENTS, name="dead-letter-value"),
        route("/dead-letter/proposed-value", proposed_value, needs=Role.PAYMENTS, name="proposed-value"),
        route("/dead-letter/edit", one.edited, needs=Role.OPERATOR, name="form-dead-letter-edit", tokens=console.tokens),
        form_route(console, "/dead-letter/edit/approve", ApproveEdit, ours.approve, outcomes_page),
        form_route(console, "/dead-letter/edit/reject", RejectEdit, ours.reject, outcomes_page),
    ]


def _saved(value: bytes, name: str) -> Response:
    """Return the bytes as a file to save: no browser renders them."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(value, media_type=_BYTES, headers=headers)


def _filter(parameters: Mapping[str, str]) -> Filter:
    return Filter(*(parameters.get(name) or None for name in Filter._fields))


def dead_letter_operations(console: Console) -> list[Operation]:
    ours = _DeadLetters(console)

    def several(request: Request, query: LettersQuery) -> DeadLettersAnswer:
        found = ours.list(request, Filter(query.reason, query.unit, query.state, query.receiver))
        listed = tuple(map(listed_answer, found.rows[: query.limit]))
        return DeadLettersAnswer(listed, found.matching, dict(found.by_state), dict(found.new_by_reason), found.where)

    def one(request: Request, query: OneLetterQuery) -> DeadLetterAnswer:
        return answer_about(identity_of(request), ours.get(request, query.number))

    def value(request: Request, query: OneLetterQuery) -> Response:
        return Response(ours.value(request, query.number), media_type=_BYTES)

    def proposed_value(request: Request, query: OneLetterQuery) -> Response:
        return Response(ours.proposed_value(request, query.number), media_type=_BYTES)

    def requeue(request: Request, body: Requeue) -> Response:
        return _outcomes(ours.requeue(request, ours.noted(request, "requeue", body), again=body.again))

    def discard(request: Request, body: Discard) -> Response:
        because = reason_of(body.because)
        return _outcomes(ours.discard(request, ours.noted(request, "discard", body, because=because), because))

    def reject(request: Request, body: RejectEdit) -> Response:
        reason_of(body.because)
        return _outcomes(ours.reject(request, body))

    edit, approve = _answered(ours.edit), _answered(ours.approve)
    one_summary, its_value = "One dead letter, without its value", "The exact bytes of its value; the look is noted"
    proposed, payments = "The exact bytes of the proposed value; the look is noted", Role.PAYMENTS
    proposed_path, proposed_name = "/dead-letter/proposed-value", "dead-letter-proposed-value"
    return [
        Operation("/dead-letters", "dead-letters", several, DeadLettersAnswer, "The dead letters", LettersQuery),
        Operation("/dead-letter", "dead-letter", one, DeadLetterAnswer, one_summary, OneLetterQuery),
        Operation("/dead-letter/value", "dead-letter-value", value, _BYTES, its_value, OneLetterQuery, payments),
        change_of("/dead-letters/requeue", "requeue", requeue, OutcomesAnswer, "Send them again, each once", Requeue),
        change_of("/dead-letters/discard", "discard", discard, OutcomesAnswer, "Decide to do nothing", Discard),
        Operation(proposed_path, proposed_name, proposed_value, _BYTES, proposed, OneLetterQuery, payments),
        change_of("/dead-letter/edit", "edit", edit, OutcomesAnswer, "Send or propose one, corrected", EditAndSend),
        change_of("/dead-letter/edit/approve", "approve-edit", approve, OutcomesAnswer, "Approve an edit", ApproveEdit),
        change_of("/dead-letter/edit/reject", "reject-edit", reject, OutcomesAnswer, "Reject an edit", RejectEdit),
    ]


def _answered(change: Callable[[Request, Taken], Iterable[Outcome]]) -> Callable[[Request, Taken], Response]:
    return lambda request, body: _outcomes(change(request, body))


def _outcomes(outcomes: Iterable[Outcome]) -> Response:
    answers = tuple(map(outcome_answer, outcomes))
    failed = [each for each in answers if each.problem is not None]
    if not failed:
        return answer_of(OutcomesAnswer(answers))
    error = f"{len(failed)} of {len(answers)} not done; {failed[0].number}: {failed[0].problem}"
    return answer_of(OutcomesAnswer(answers, error), HTTPStatus.CONFLICT)


def _bytes(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"value is no text: {error.reason}") from error
