"""The payment data of a unit: the latest object of each type, name and key."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from notification_service.payments.envelope import MAX_OBJECTS, DataEnvelope
from resequencer.errors import TooLarge, TooManyObjects

Bodies = tuple[tuple[str, bytes], ...]


class PaymentData(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Raw JSON bodies by MDS object type, PDS name and custom key. A later object replaces an earlier one whole."""

    mds: Bodies = ()
    pds: Bodies = ()
    custom: Bodies = ()

    def refuse_too_much(self, envelope: DataEnvelope, max_bytes: int, size: int) -> None:
        """Refuse an envelope whose objects may exceed the unit's limits. Objects that replace others are counted too.

        `size` is that of this payment data.

        Raises:
            TooManyObjects: The unit could have more than `MAX_OBJECTS` objects of a kind.
            TooLarge: The unit could have more than `max_bytes` of payment data.
        """
        # All objects are within the record.
        if size + len(envelope.record.value or b"") > max_bytes and size + (came_bytes := _bytes_of(envelope)) > max_bytes:
            raise TooLarge(
                f"the unit has {size} bytes of payment data and this envelope adds {came_bytes}; the limit is {max_bytes} "
                "(stash-limit.bytes-per-unit)"
            )
        came = len(envelope.mds_objects) + len(envelope.pds_objects) + len(envelope.custom_objects)
        if came + len(self.mds) + len(self.pds) + len(self.custom) <= MAX_OBJECTS:
            return
        for kind, there, more in (
            ("MDS", len(self.mds), len(envelope.mds_objects)),
            ("PDS", len(self.pds), len(envelope.pds_objects)),
            ("custom", len(self.custom), len(envelope.custom_objects)),
        ):
            if there + more > MAX_OBJECTS:
                raise TooManyObjects(
                    f"{kind} objects: the unit has {there} and this envelope adds {more}; the limit is {MAX_OBJECTS} of a kind"
                )

    @property
    def size(self) -> int:
        """The bytes of names and bodies."""
        return sum([len(name) + len(body) for kind in (self.mds, self.pds, self.custom) for name, body in kind])

    def find_mds(self, object_type: str) -> bytes | None:
        for each, body in self.mds:
            if each == object_type:
                return body
        return None

    def absorb(self, envelope: DataEnvelope) -> PaymentData:
        """Return the payment data with the envelope's objects. Each replaces the object of the same name."""
        if not (envelope.mds_objects or envelope.pds_objects or envelope.custom_objects):
            return self
        return PaymentData(
            _merge(self.mds, [(each.object_type, each.body) for each in envelope.mds_objects]),
            _merge(self.pds, [(each.name, each.body) for each in envelope.pds_objects]),
            _merge(self.custom, [(each.key, each.body) for each in envelope.custom_objects]),
        )

    def fill(self, envelope: DataEnvelope) -> PaymentData:
        """Return the payment data with only the missing ones of the envelope's objects: a late envelope must not replace any."""
        came = PaymentData().absorb(envelope)
        if came == PaymentData():
            return self
        return PaymentData(_merge(came.mds, self.mds), _merge(came.pds, self.pds), _merge(came.custom, self.custom))


def _bytes_of(envelope: DataEnvelope) -> int:
    size = sum([len(each.object_type) + len(each.body) for each in envelope.mds_objects])
    size += sum([len(each.name) + len(each.body) for each in envelope.pds_objects])
    return size + sum([len(each.key) + len(each.body) for each in envelope.custom_objects])


def _merge(known: Bodies, came: Iterable[tuple[str, bytes]]) -> Bodies:
    if not came:
        return known
    return tuple((dict(known) | dict(came)).items())


class LatestObjects:
    """Keeps the payment data of a unit: the MDS Object Handler of IPF's documentation. `resequencer.handler.DataHandler`."""

    empty = PaymentData()
    absorb = staticmethod(PaymentData.absorb)
    fill = staticmethod(PaymentData.fill)
    encode = staticmethod(msgspec.msgpack.Encoder().encode)
    decode = staticmethod(msgspec.msgpack.Decoder(PaymentData).decode)
    refuse_too_much = staticmethod(PaymentData.refuse_too_much)

    def size_of(self, data: PaymentData) -> int:
        return data.size


LATEST_OBJECTS = LatestObjects()
