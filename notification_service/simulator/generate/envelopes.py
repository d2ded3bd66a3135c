"""Writes data envelopes as JSON, as a payment flow would, in both schema versions and both spellings."""

from random import Random
from uuid import UUID

import msgspec

from guardian.headers import SCHEMA_VERSION
from notification_service.simulator.generate.flows import Happening
from notification_service.simulator.generate.plan import Schema
from resequencer.clock import Instant, instant_text
from resequencer.record import Headers

PART_TYPES = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION")
"""The MDS types of the three parts of a pain.001."""

_OTHER_SPELLING = "PAIN_001_CREDIT_TRANSFER_TRANSACTION"
_PART_NAMES = dict(
    zip(PART_TYPES, ("CustomerCreditTransferInitiation", "PaymentInstruction", "CreditTransferTransaction"), strict=True)
)


class Carried:
    """The data that one envelope carries: parts of the pain.001 by MDS type, custom values by key, PDS values by name."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, bytes]] = []
        self.custom: dict[str, str] = {}
        self.pds: dict[str, str] = {}

    def add_part(self, index: int, body: bytes) -> None:
        """Add part `index` (0 … 2) of the pain.001, as JSON."""
        self.parts.append((PART_TYPES[index], body))


class EnvelopeWriter:
    """Writes the envelopes of one unit in their true order, each created 0.2 … 4 s after the one before.

    `headers` are those of all its records. Version 2 is the default, so half of its units have no version header.
    """

    def __init__(self, unit: str, schema: Schema, begins_at: Instant, rng: Random) -> None:
        self.headers: Headers = ((SCHEMA_VERSION, schema.value.encode()),)
        if schema is Schema.TWO and rng.random() < 0.5:
            self.headers = ()
        self._schema = schema
        self._unit = unit
        self._entity = f"PaymentFlow|{unit}"
        self._at = begins_at
        self._rng = rng
        self._has_other_spelling = rng.random() < 0.25

    def write(self, happening: Happening, sequence: int, carried: Carried) -> tuple[bytes, str]:
        """Return the envelope's JSON, and its envelope id by the rule of docs/contract.md, section 5."""
        self._at += self._rng.randint(200, 4_000)
        created = instant_text(self._at)
        checkpoint = f"ev-{sequence}"
        context = {
            "unitOfWorkId": self._unit,
            "clientRequestId": f"req-{self._unit}",
            "associationId": self._entity,
            "processingEntity": "BANK_001",
            "checkpoint": checkpoint,
        }
        processes = self._process_objects(happening, context, created)
        envelope: dict[str, object] = {
            "processingContext": context,
            "flow": happening.flow,
            "sequence": sequence,
            "createdAt": created,
            "mdsObjects": self._mds_objects(carried, context, created, checkpoint),
            "processObjects": processes,
        }
        if carried.pds:
            envelope["pdsObjects"] = self._pds_objects(carried)
        if carried.custom:
            envelope["customObjects"] = self._custom_objects(carried)
        first_id = processes[0].get("uniqueId") if processes else None
        return msgspec.json.encode(envelope), str(first_id or f"{happening.flow}#{sequence}")

    def _process_objects(self, happening: Happening, context: object, created: str) -> list[dict[str, object]]:
        """Return one object per event. In one envelope of twenty none has an id; flow and sequence then make the envelope id."""
        has_ids = self._rng.random() >= 0.05
        objects = []
        for event in happening.events:
            body: dict[str, object] = {"eventName": event, "processFlowName": happening.flow}
            if happening.reason_code is not None and event == happening.events[-1]:
                body["reasonCode"] = happening.reason_code
            unique_id = UUID(int=self._rng.getrandbits(128), version=4)
            made: dict[str, object] = {"uniqueId": f"{self._entity}|{unique_id}"} if has_ids else {}
            made |= {"objectType": "PROCESS_FLOW_EVENT", "object": body, "createdAt": created, "processingContext": context}
            objects.append(made)
        return objects

    def _mds_objects(self, carried: Carried, context: object, created: str, checkpoint: str) -> list[dict[str, object]]:
        return [
            {
                "uniqueId": f"{self._unit}|Pain001|0|{_PART_NAMES[object_type]}",
                "objectType": self._spelling(object_type),
                "object": msgspec.Raw(body),
                "primaryAssociation": self._entity,
                "createdAt": created,
                "processObjectReference": f"{self._entity}|{checkpoint}",
                "processingContext": context,
            }
            for object_type, body in carried.parts
        ]

    def _pds_objects(self, carried: Carried) -> list[dict[str, object]]:
        return [
            {
                "uniqueId": f"{self._unit}|pds|{name}",
                "name": name,
                "objectType": "JourneyType",
                "version": 0,
                "object": {"value": value},
            }
            for name, value in carried.pds.items()
        ]

    def _custom_objects(self, carried: Carried) -> list[dict[str, object]]:
        if self._schema is Schema.ONE:
            return [
                {
                    "uniqueId": f"{self._unit}|custom|{key}",
                    "objectType": "KEY_VALUE",
                    "object": {"name": key, "content": value},
                }
                for key, value in carried.custom.items()
            ]
        return [{"uniqueId": f"{self._unit}|custom|{key}", "key": key, "value": value} for key, value in carried.custom.items()]

    def _spelling(self, object_type: str) -> str:
        return _OTHER_SPELLING if object_type == PART_TYPES[2] and self._has_other_spelling else object_type
