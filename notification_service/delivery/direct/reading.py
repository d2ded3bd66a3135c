"""Makes open records of what was read."""

from hashlib import sha256

from guardian.headers import DELIVERY_ID, Way, texts_of, way_of
from notification_service.delivery.direct.core.open_record import OpenRecord
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.core.stages import Stage
from notification_service.delivery.feeds.port import make_item
from notification_service.events.identifiers import find_id_flaw
from resequencer.clock import Clock
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Record


class Flaw(Exception):
    """The record cannot be delivered."""

    def __init__(self, reason: DeadLetterReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Reading:
    """Opens the records of one stage. `source` names the log that offsets count in."""

    def __init__(self, stage: Stage, gate: SharedGate, clock: Clock, source: str) -> None:
        self._stage, self._gate, self._clock = stage, gate, clock
        self._log = sha256(source.encode()).hexdigest()[:16]

    def open(self, record: Record, now: int) -> OpenRecord | None:
        """Return the record; None if the receiver does not get it. `now` is that of the clock that never goes back.

        Look for a flaw in it before it is delivered.
        """
        way = Way(record.origin) if self._stage.is_source else way_of(record)
        item = make_item(record.key, record.value, record.headers, str(way.origin))
        if self._stage.is_source and item.defect is None and not self._stage.receiver.select.selects(item.status, item.entity):
            return None
        return OpenRecord(
            record=record,
            way=way,
            key=item.key,
            lane=record.origin.offset if record.key is None else record.key,
            notification_id=item.notification_id or self._own_id(record, way),
            row=self._gate.new_row(),
            due_at=now + self._wait_ms(way),
        )

    def find_flaw(self, opened: OpenRecord) -> Flaw | None:
        """Return why the record cannot be delivered; None if it can."""
        record = opened.record
        if record.defect is not None:
            return Flaw(DeadLetterReason.UNDECODABLE, record.defect)
        if record.cut is not None:
            return Flaw(DeadLetterReason.TOO_LARGE, f"its value has {record.cut.length} bytes; raise max-record-bytes")
        defect = _find_key_defect(record.key) or make_item(record.key, b"", record.headers, "").defect
        if defect is None and (flaw := _find_own_id_flaw(opened.notification_id)) is not None:
            defect = f"the header {DELIVERY_ID} {flaw}"
        return None if defect is None else Flaw(DeadLetterReason.UNDELIVERABLE, defect)

    def _own_id(self, record: Record, way: Way) -> str:
        """Return the idempotency key of a record without an id: the same whenever, and from wherever, the record is delivered."""
        partition, offset = way.origin
        return texts_of(record.headers).get(DELIVERY_ID) or f"{self._log}-{partition.number}-{offset}"

    def _wait_ms(self, way: Way) -> int:
        if way.submitted_at is None:
            return 0
        return min(max(0, way.submitted_at + self._stage.delay_ms - self._clock.now()), self._stage.delay_ms)


def _find_key_defect(key: bytes | None) -> str | None:
    """Return why the key names no unit: two keys that are no text would become the same path."""
    try:
        (key or b"").decode()
    except UnicodeDecodeError as error:
        return f"the key of the record, which is the unit of work, is no UTF-8 ({error.reason} at byte {error.start})"
    return None


def _find_own_id_flaw(own_id: str) -> str | None:
    if own_id != own_id.strip():
        return "begins or ends with a space"
    return find_id_flaw(own_id)
