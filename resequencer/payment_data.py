"""What is known about a unit's payment: the latest object of each type, name and key."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from domain.envelope import MOST_OBJECTS, DataEnvelope
from domain.errors import TooLarge, TooManyObjects

Bodies = tuple[tuple[str, bytes], ...]

_KINDS = ("MDS", "PDS", "custom")


class PaymentData(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Raw JSON bodies by MDS object type, PDS name and custom key. A later object replaces an earlier one whole."""

    mds: Bodies = ()
    pds: Bodies = ()
    custom: Bodies = ()

    def refuse_too_much(self, envelope: DataEnvelope, most_bytes: int) -> None:
        """With the envelope's objects, of which those that replace one count too.

        Raises:
            TooManyObjects: The unit could hold more than `MOST_OBJECTS` of a kind.
            TooLarge: It could hold more than so many bytes.
        """
        if not (envelope.mds_objects or envelope.pds_objects or envelope.custom_objects):
            return
        came_bytes = sum([len(each.object_type) + len(each.body) for each in envelope.mds_objects])
        came_bytes += sum([len(each.name) + len(each.body) for each in envelope.pds_objects])
        came_bytes += sum([len(each.key) + len(each.body) for each in envelope.custom_objects])
        if self.size + came_bytes > most_bytes:
            raise TooLarge(
                f"the unit holds {self.size} bytes of payment data and this brings {came_bytes}; a unit may hold {most_bytes} "
                "(stash-limit.bytes-per-unit)"
            )
        held = (len(self.mds), len(self.pds), len(self.custom))
        came = (len(envelope.mds_objects), len(envelope.pds_objects), len(envelope.custom_objects))
        for kind, there, more in zip(_KINDS, held, came, strict=True):
            if there + more > MOST_OBJECTS:
                raise TooManyObjects(
                    f"the unit holds {there} {kind} objects and this brings {more}; a unit may hold {MOST_OBJECTS} of a kind"
                )

    @property
    def size(self) -> int:
        """In bytes of names and bodies."""
        return sum([len(name) + len(body) for kind in (self.mds, self.pds, self.custom) for name, body in kind])

    def find_mds(self, object_type: str) -> bytes | None:
        for each, body in self.mds:
            if each == object_type:
                return body
        return None

    def absorb(self, envelope: DataEnvelope) -> PaymentData:
        """With the envelope's objects taken over; the same value if it has none."""
        if not (envelope.mds_objects or envelope.pds_objects or envelope.custom_objects):
            return self
        return PaymentData(
            _merge(self.mds, [(each.object_type, each.body) for each in envelope.mds_objects]),
            _merge(self.pds, [(each.name, each.body) for each in envelope.pds_objects]),
            _merge(self.custom, [(each.key, each.body) for each in envelope.custom_objects]),
        )

    def fill(self, envelope: DataEnvelope) -> PaymentData:
        """With those of the envelope's objects of which nothing was known: what comes late must not undo what came later."""
        came = PaymentData().absorb(envelope)
        if came == PaymentData():
            return self
        return PaymentData(_merge(came.mds, self.mds), _merge(came.pds, self.pds), _merge(came.custom, self.custom))


def _merge(known: Bodies, came: Iterable[tuple[str, bytes]]) -> Bodies:
    if not came:
        return known
    return tuple((dict(known) | dict(came)).items())
