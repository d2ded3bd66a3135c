"""One attempt at handling an envelope."""

from typing import Any

from domain.envelope import DataEnvelope
from domain.errors import PermanentError, TransientError
from resequencer.handlers.port import Marks
from resequencer.payment_data import PaymentData
from resequencer.stash import Stashed
from resequencer.unit import REMEMBERED_ENVELOPES, Retry
from resequencer.working_copy import WorkingCopy


def attempt(copy: WorkingCopy, entry: Stashed, *, is_forced: bool = False) -> None:
    """All of it leaves, or it is tried again later, or it is buried. In each case the unit goes on.

    The entry is in the stash no more.
    """
    envelope, data, attempts = entry.envelope, copy.data, copy.attempts_of(entry)
    copy.in_hand = envelope
    try:
        marks = Marks(copy.incomplete, not is_forced and copy.strategy.is_late(copy.state, envelope))
        data = _data_with(copy, envelope, marks)
        handled = copy.rules.handler.handle(envelope, data, marks, copy.now)
        state = _counted(copy, envelope, is_forced=is_forced)
    except TransientError as error:
        if attempts + 1 < copy.rules.settings.max_attempts:
            _postpone(copy, entry, attempts + 1, is_forced=is_forced)
        else:
            last = PermanentError(f"{error} (attempt {attempts + 1} of {attempts + 1})")
            _give_up(copy, entry, last, data, is_forced=is_forced)
    except PermanentError as error:
        _give_up(copy, entry, error, data, is_forced=is_forced)
    else:
        copy.state, copy.data = state, data
        copy.handled = copy.handled.add(envelope.id_hash, envelope.digest, REMEMBERED_ENVELOPES)
        copy.effects.notify(entry, handled, marks)


def _data_with(copy: WorkingCopy, envelope: DataEnvelope, marks: Marks) -> PaymentData:
    """What comes late fills only what is missing: no later object is undone by an earlier one."""
    if marks.late:
        return copy.data.fill(envelope)
    return copy.data.absorb(envelope) if envelope.offset > copy.gathered_to else copy.data


def _counted(copy: WorkingCopy, envelope: DataEnvelope, *, is_forced: bool) -> Any:
    return (copy.strategy.forced if is_forced else copy.strategy.handled)(copy.state, envelope)


def _postpone(copy: WorkingCopy, entry: Stashed, attempts: int, *, is_forced: bool) -> None:
    settings = copy.rules.settings
    jitter = copy.rules.chance.uniform(1 - settings.jitter_factor, 1 + settings.jitter_factor)
    due_at = copy.now + round(settings.delay_ms(attempts) * jitter)
    copy.retry = Retry(entry, attempts, due_at, copy.incomplete, is_forced, copy.released_to)
    copy.effects.count("retries")
    copy.effects.stash(entry)


def _give_up(copy: WorkingCopy, entry: Stashed, error: PermanentError, data: PaymentData, *, is_forced: bool) -> None:
    """The envelope is buried, its id not remembered; its data counts, and its successors are not kept waiting for it."""
    copy.data, told = data, str(error)
    try:
        counted = _counted(copy, entry.envelope, is_forced=is_forced)
        copy.state = copy.strategy.buried(counted, entry.envelope)
    except PermanentError as again:
        told = f"{told}; {again}"
    copy.effects.bury_entry(entry, error.reason, told)
