"""Envelopes whose id was seen before. With the same content they are dropped; with other content they are dead letters."""

from domain.dead_letter import DeadLetterReason
from domain.envelope import DataEnvelope
from resequencer.turn.working_copy import WorkingCopy


def find_known(copy: WorkingCopy, envelope: DataEnvelope) -> bytes | None:
    """Return the digest of the envelope that was handled or waits under the same id; None if the id is new."""
    retry = copy.retry
    if retry is not None and retry.entry.envelope.id_hash == envelope.id_hash:
        return retry.entry.envelope.digest
    return copy.handled.find(envelope.id_hash) or copy.stash.ids.find(envelope.id_hash)


def refuse_known(copy: WorkingCopy, envelope: DataEnvelope, digest: bytes) -> None:
    if digest == envelope.digest:
        copy.effects.count("duplicates")
        return
    error = (
        f"envelope id {envelope.envelope_id!r} was seen before with another flow, sequence or object body; "
        "if both envelopes are intended, requeue this one under an id of its own"
    )
    copy.effects.dead_letter(envelope.record, DeadLetterReason.CONFLICTING_DUPLICATE, error)
