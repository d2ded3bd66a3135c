"""The interface of feeds."""

from collections.abc import Mapping
from typing import Protocol

from guardian import headers as names
from notification_service.delivery.core.jobs import Item
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.settings import Select
from notification_service.events.identifiers import MAX_LENGTH, find_id_flaw
from resequencer.record import Headers

MAX_BYTES = 16 * 1024 * 1024
"""A portion ends with the record that brings it to so many bytes: records can be large, and a portion is in memory at once."""


class Feed(Protocol):
    """A source of notifications that can be read again from each position that it has given."""

    def read(self, positions: Mapping[str, int], limit: int) -> Portion:
        """Return the next records behind the positions, about `limit` of them, and fewer if they are large.

        Raises:
            TransientError: The source does not answer.
            ResequencerError: It cannot be read; the text has the reason.
        """
        ...

    def close(self) -> None: ...


def make_item(key: bytes | None, value: bytes, headers: Headers, position: str, place: str | None = None) -> Item:
    """Return a record as an item. It has a `defect` if it cannot be delivered.

    `place` identifies a record without a notification id; by default its `position` does, which is for people.
    """
    texts = names.own_texts(headers)
    unit = names.find_unit(key, texts) or ""
    found = texts.get(names.NOTIFICATION_ID)
    defect = _find_defect(unit, found)
    return Item(
        dedup=found if found and defect is None else place or position,
        key=unit if defect is None else unit[:MAX_LENGTH].replace("\x00", ""),
        value=value,
        headers=headers,
        position=position,
        notification_id=None if defect else found,
        status=texts.get(names.TRANSACTION_STATUS),
        entity=texts.get(names.PROCESSING_ENTITY),
        defect=defect,
    )


def _find_defect(unit: str, notification_id: str | None) -> str | None:
    """Return what no database or no header of HTTP would take."""
    if (flaw := find_id_flaw(unit)) is not None:
        return f"the key of the record, which is the unit of work, {flaw}"
    if not notification_id:
        return None
    flaw = find_id_flaw(notification_id)
    if flaw is None and notification_id != notification_id.strip():
        flaw = "begins or ends with a space"
    return None if flaw is None else f"the header {names.NOTIFICATION_ID} {flaw}"


def select_items(items: list[Item], select: Select) -> list[Item]:
    """Return the items that the receiver gets. They include what has a defect: it is reported as failed."""
    return [item for item in items if item.defect is not None or select.selects(item.status, item.entity)]
