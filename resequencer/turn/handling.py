"""One attempt at handling an envelope."""

from contextlib import suppress
from typing import Any

from domain.envelope import DataEnvelope
from domain.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.handlers.port import Marks
from resequencer.payment_data import PaymentData
from resequencer.stash import Stashed
from resequencer.turn.marks import marks_of
from resequencer.turn.retry_delay import postpone, wait_for_server
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import REMEMBERED_ENVELOPES, Retry


def attempt(copy: WorkingCopy, entry: Stashed, *, is_forced: bool = False) -> None:
    """Handle an entry: all its notifications are added, or it is put under retry, or it is dead-lettered. The unit goes on.

    The caller has removed the entry from the stash.
    """
    envelope, data, before = entry.envelope, copy.data, copy.tried_before(entry)
    attempts = 0 if before is None else before.attempts
    copy.current = envelope
    try:
        marks = marks_of(copy, envelope, is_forced=is_forced)
        data = _data_with(copy, envelope, marks)
        handled = copy.context.handler.handle(envelope, data, marks, copy.now)
        state = _counted(copy, envelope, is_forced=is_forced)
    except DependencyUnavailable as error:
        calls = before.calls + 1 if before is not None and before.dependency == error.name else 1
        marks_then = (copy.incomplete, is_forced, copy.released_to)
        waiting = Retry(entry, attempts, copy.now, *marks_then, error.name, calls, is_ordered=copy.is_ordered)
        wait_for_server(copy, waiting)
    except TransientError as error:
        if attempts + 1 < copy.context.settings.max_attempts:
            postpone(copy, entry, attempts + 1, error, is_forced=is_forced)
        else:
            last = PermanentError(f"{error} (attempt {attempts + 1} of {attempts + 1})")
            _give_up(copy, entry, last, data, is_forced=is_forced)
    except PermanentError as error:
        _give_up(copy, entry, error, data, is_forced=is_forced)
    else:
        copy.state, copy.data = state, data
        copy.handled = copy.handled.add(envelope.id_hash, envelope.digest, REMEMBERED_ENVELOPES)
        copy.effects.notify(entry, handled, marks)


def set_aside(copy: WorkingCopy, retry: Retry, why: PermanentError) -> None:
    """Dead-letter the entry under retry without another attempt."""
    envelope, data = retry.entry.envelope, copy.data
    copy.current, copy.retry, copy.is_changed = envelope, None, True
    with suppress(PermanentError):
        data = _data_with(copy, envelope, marks_of(copy, envelope, is_forced=retry.is_forced))
    _give_up(copy, retry.entry, why, data, is_forced=retry.is_forced)


def _data_with(copy: WorkingCopy, envelope: DataEnvelope, marks: Marks) -> PaymentData:
    """Return the payment data with the envelope's objects. A late envelope adds only missing objects and replaces none."""
    if marks.late:
        return copy.data.fill(envelope)
    return copy.data.absorb(envelope) if envelope.offset > copy.gathered_to else copy.data


def _counted(copy: WorkingCopy, envelope: DataEnvelope, *, is_forced: bool) -> Any:
    return (copy.strategy.forced if is_forced else copy.strategy.handled)(copy.state, envelope)


def _give_up(copy: WorkingCopy, entry: Stashed, error: PermanentError, data: PaymentData, *, is_forced: bool) -> None:
    """Dead-letter the envelope without remembering its id. Its data counts, and its successors do not wait for it."""
    copy.data, told = data, str(error)
    try:
        counted = _counted(copy, entry.envelope, is_forced=is_forced)
        copy.state = copy.strategy.dead_lettered(counted, entry.envelope)
    except PermanentError as again:
        told = f"{told}; {again}"
    copy.effects.dead_letter_entry(entry, error.reason, told)
