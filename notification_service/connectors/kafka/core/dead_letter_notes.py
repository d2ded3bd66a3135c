"""Notes of what operators did with the dead letters of a topic. A note is in the same partition, behind its dead letter.

So a reader of the letters also reads what became of them. Note and requeued record are sent in one transaction, and retention
never deletes a note before its letter.
"""

import msgspec

from guardian.headers import DEAD_LETTER_ACTION
from notification_service.connectors.dead_letters.actions import Action
from notification_service.connectors.kafka.core.records import ProducerRecord
from resequencer.record import Headers

_DECODER: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)


def is_note(headers: Headers) -> bool:
    """Return whether the record is a note. A note has this header only; a dead letter has others behind it in any case."""
    return len(headers) == 1 and headers[0][0] == DEAD_LETTER_ACTION


def note_of(topic: str, action: Action) -> ProducerRecord:
    """Return the note: its key is the number of the dead letter, its value the action as JSON."""
    return ProducerRecord(
        topic, action.number.encode(), ((DEAD_LETTER_ACTION, action.state.encode()),), msgspec.json.encode(action)
    )


def read_note(value: bytes) -> Action:
    """Decode a note. Raises ValueError with the problem if the value is no note."""
    try:
        return _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no note of what was done ({error})") from error
