"""What is still wrong with an edited dead letter, as far as the service's own decoder can tell."""

from collections.abc import Callable

from guardian.headers import DELIVERY_ID
from notification_service.connectors.dead_letters.stored_dead_letter import StoredDeadLetter
from notification_service.events.identifiers import shown
from resequencer.envelope import DataEnvelope, Refusal
from resequencer.record import Record


def find_flaw(letter: StoredDeadLetter, decode: Callable[[Record], DataEnvelope | Refusal]) -> str | None:
    """Return why the edited record would be a dead letter again, or that it is of another unit; None without such a flaw.

    Its unit must be one that the dead letter names, in its key or in its value. A dead letter that names none may be of any unit.
    What handling the envelope would lead to is not tried. A record that could not be delivered to a receiver is not decoded: only
    the receiver knows what it takes.
    """
    if DELIVERY_ID in dict(letter.headers_to_requeue):
        return None
    record = letter.letter.record
    decoded = decode(Record(record.origin, letter.value_to_requeue, record.key, letter.headers_to_requeue))
    if isinstance(decoded, Refusal):
        return f"it would be a dead letter again, {decoded.reason.value}: {decoded.error}"
    key = None if record.key is None else record.key.decode("utf-8", "replace")
    named = dict.fromkeys(each for each in (letter.unit, key) if each is not None)
    if named and decoded.unit not in named:
        return f"it is of unit {shown(decoded.unit)}, the dead letter of {' or '.join(map(shown, named))}"
    return None
