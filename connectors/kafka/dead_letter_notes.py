"""What people did with the dead letters of a topic, noted in that topic itself: in the partition of the letter, behind it.

So whoever has read the letters has read what became of them, both leave in one transaction with what was requeued, and no
retention takes a note before its letter.
"""

import msgspec

from connectors.dead_letters.actions import Action
from connectors.kafka.core.records import ProducerRecord
from domain.headers import DEAD_LETTER_ACTION
from domain.record import Headers

_DECODER: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)


def is_note(headers: Headers) -> bool:
    """A note has this one header; a dead letter has others behind it, also one whose record had this one."""
    return len(headers) == 1 and headers[0][0] == DEAD_LETTER_ACTION


def note_of(topic: str, action: Action) -> ProducerRecord:
    """Its key is the number of the dead letter, its value the action as JSON."""
    return ProducerRecord(
        topic, action.number.encode(), ((DEAD_LETTER_ACTION, action.state.encode()),), msgspec.json.encode(action)
    )


def read_note(value: bytes) -> Action:
    """Raises ValueError with what is wrong with it, if it is none."""
    try:
        return _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no note of what was done ({error})") from error
