"""Reads of a part of a pain.001 what a report repeats, as the schema of the report accepts it."""

import msgspec

from domain.errors import PermanentError
from resequencer.handlers.iso20022.complex_types import Sequence
from resequencer.handlers.iso20022.simple_types import JsonNumber
from resequencer.handlers.iso20022.strict_types import strict_type

Fields = dict[str, msgspec.Raw]
"""Valid children by name, in the schema's order, encoded."""

_encode = msgspec.json.Encoder().encode
_decode_leniently = msgspec.json.Decoder(float_hook=JsonNumber).decode
_decode_fields = msgspec.json.Decoder(Fields).decode


class PartReader:
    """Of a part whose every child is valid as it stands all is read at once, in C; of any other one child after the other.

    Either way the same comes out: the first is the faster by far, and nearly all payments are valid. `object_type` is that
    of the MDS objects that hold the part.
    """

    def __init__(self, object_type: str, kind: Sequence) -> None:
        self.object_type = object_type
        self._kind = kind
        self._decode_strictly = msgspec.json.Decoder(strict_type(kind)).decode

    def read(self, body: bytes) -> Fields:
        """The valid children of the part's raw body.

        Raises:
            PermanentError: It is no JSON, not UTF-8, or nested too deep to be read.
        """
        encoded = self.find_valid(body)
        return _decode_fields(self.conformed(body) if encoded is None else encoded)

    def find_valid(self, body: bytes) -> bytes | None:
        """The valid children, None if not all of them are valid as they stand."""
        try:
            if not body.isascii():
                body.decode()  # msgspec does not look into the strings of what it skips.
            encoded = _encode(self._decode_strictly(body))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        return encoded if _is_plain(encoded) else None

    def conformed(self, body: bytes) -> bytes:
        """The valid children, looked for one by one."""
        try:
            value = _decode_leniently(body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PermanentError(f"the body of {self.object_type} cannot be read: {error}") from error
        return _encode(self._kind.conform(value) or {})


def _is_plain(encoded: bytes) -> bool:
    """No element without a child, no string that is blank, nothing that XML forbids; now and then it is wrong about a text."""
    if b"\\" in encoded or b'" ' in encoded or b"{}" in encoded:
        return False
    # Other control characters than this one are written with a backslash.
    return b"\x7f" not in encoded if encoded.isascii() else encoded.decode().isprintable()
