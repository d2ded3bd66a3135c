"""Envelopes whose id was seen before: the same again is dropped, anything else under that id is a dead letter."""

from domain.dead_letter import DeadLetterReason
from domain.envelope import DataEnvelope
from resequencer.working_copy import WorkingCopy


def find_known(copy: WorkingCopy, envelope: DataEnvelope) -> bytes | None:
    """The digest of what was handled or waits under the envelope's id."""
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
        "requeue it under an id of its own if both are meant"
    )
    copy.effects.dead_letter(envelope.record, DeadLetterReason.CONFLICTING_DUPLICATE, error)
