"""Texts of errors as people without the role `payments` see them.

The text of an error that a handler raises is not ours, and may quote the payment. Its type may be seen, if it is known to be one.
"""

import re

import msgspec

from notification_service.console.access.identity import Identity
from notification_service.console.access.role import Role
from notification_service.console.dead_letters.listing import DeadLetterList
from notification_service.console.units.story import UnitStory
from resequencer.dead_letter import DeadLetterReason

_RAISED = re.compile(r"^(?:(?:handler )?[\w.:-]{1,200} raised|strategy [\w.:-]{1,200} failed:) ([A-Za-z_]{1,64})\b")
_TYPE = re.compile(r"^([A-Za-z_]{0,60}(?:Error|Exception|Unavailable|Timeout))\b")
_ANSWER = re.compile(r"(?:HTTP -?\d+|[A-Za-z]*ProtocolError)(?=:)")
"""How `notification_service.delivery.core.answers.Answer` writes an answer that has a body, whatever the status; and how the
client begins when it quotes what is no answer of HTTP, such as an illegal status line."""
_OF_AN_ANSWER = frozenset(
    {
        DeadLetterReason.REJECTED.value,
        DeadLetterReason.UNEXPECTED_ANSWER.value,
        DeadLetterReason.ATTEMPTS_EXHAUSTED.value,
        DeadLetterReason.SKIPPED.value,
    }
)
"""Dead letters of these reasons quote what a receiver answered."""
_OUR_MISTAKE = "; the service failed on it"
MASKED = "its text may quote the payment: seeing it needs the role payments"


def error_for(identity: Identity, reason: str, error: str) -> str:
    """Return the error of a dead letter, as far as this person may see it."""
    if reason in _OF_AN_ANSWER:
        return answer_for(identity, error)
    is_foreign = reason == DeadLetterReason.HANDLER_FAILED.value or _OUR_MISTAKE in error
    return _masked(error) if is_foreign and not identity.may(Role.PAYMENTS) else error


def answer_for(identity: Identity, error: str) -> str:
    """Return what a receiver answered, as far as this person may see it: its status, and the text of our own errors."""
    found = _ANSWER.search(error)
    return error if found is None or identity.may(Role.PAYMENTS) else f"{error[: found.end()]} ({MASKED})"


def list_for(identity: Identity, found: DeadLetterList) -> DeadLetterList:
    """Return the list with the errors that this person may see."""
    return found._replace(rows=tuple(row._replace(error=error_for(identity, row.reason, row.error)) for row in found.rows))


def story_for_person(identity: Identity, story: UnitStory) -> UnitStory:
    """Return the story with the errors that this person may see."""
    if identity.may(Role.PAYMENTS):
        return story
    letters = tuple(
        msgspec.structs.replace(each, error=error_for(identity, each.reason, each.error)) for each in story.dead_letters.found
    )
    told = msgspec.structs.replace(story, dead_letters=msgspec.structs.replace(story.dead_letters, found=letters))
    if story.state is None:
        return told
    attempts, stash = story.state.attempts, story.state.stash
    if attempts is not None and attempts.why is not None:
        attempts = msgspec.structs.replace(attempts, why=_masked(attempts.why))
    stash = tuple(
        each if each.defect is None else msgspec.structs.replace(each, defect=_defect(identity, each.defect)) for each in stash
    )
    return msgspec.structs.replace(told, state=msgspec.structs.replace(story.state, attempts=attempts, stash=stash))


def _defect(identity: Identity, defect: str) -> str:
    reason, separator, error = defect.partition(": ")
    return f"{reason}{separator}{error_for(identity, reason, error)}"


def _masked(error: str) -> str:
    found = _RAISED.match(error) or _TYPE.match(error)
    known = found.group(1) if found else "an error"
    ours = ", a mistake of the service: report it with its log" if _OUR_MISTAKE in error else ""
    return f"{known}{ours} ({MASKED})"
