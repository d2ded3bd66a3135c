"""Target `payment-parts`: a part of a pain.001 gives the same result whether it is read at once or child by child."""

from random import Random

import msgspec
from fuzz.independent.json import NotJson, Object, read_json
from fuzz.readers.status_report import TOKENS, mutate
from fuzz.readers.status_report import seeds as of_payments

from notification_service.events.format import find_encoding_flaw, find_reading_flaw, read_body
from notification_service.payments.original import INSTRUCTION, MESSAGE, TRANSACTION
from resequencer.errors import PermanentError

__all__ = ["TOKENS", "check", "mutate", "seeds"]

_READERS = (MESSAGE, INSTRUCTION, TRANSACTION)


def check(data: bytes) -> None:
    """Check the bytes: the first one chooses the part, the rest is its body.

    * What the decoder lets through can be read; anything else is read or refused with a `PermanentError`, and nothing else.
    * What is valid as it stands says the same whichever way it is read.
    * What comes out is JSON, and reading that again changes nothing.
    """
    reader, body = _READERS[(data[0] if data else 0) % 3], data[1:]
    fast = reader.find_valid(body)
    try:
        slow = reader.conformed(body)
    except PermanentError:
        assert fast is None
        assert not _is_let_through(body)
        return
    assert fast in (None, slow), (fast, slow)
    assert isinstance(read_json(slow), Object)
    assert reader.conformed(slow) == slow
    reader.read(body)


def _is_let_through(body: bytes) -> bool:
    """Return whether the decoder would accept the body as payment data."""
    try:
        read_json(body)
        read_body(body)
    except (NotJson, msgspec.DecodeError):
        return False
    return find_encoding_flaw(body) is find_reading_flaw(body) is None


def seeds() -> list[bytes]:
    """Yield each part of each payment."""
    rng = Random(1)
    bodies = {body: number for payment in of_payments() for number, body in enumerate(payment.split(b"\n")[:3])}
    return [bytes([number + 3 * rng.randrange(85)]) + body for body, number in bodies.items()]
