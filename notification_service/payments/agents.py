"""Adds an agent's identity from the lookups if the payment does not have it. Existing values are never changed."""

from functools import lru_cache
from typing import Any

import msgspec

from notification_service.lookups.shapes import InstitutionValue
from notification_service.payments.enrichment import Enrichment
from notification_service.payments.iso20022.complex_types import Sequence
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.part_reader import PartReader
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED

_type = TYPES["BranchAndFinancialInstitutionIdentification6"]
assert isinstance(_type, Sequence)
_AGENT = PartReader("an agent", _type)
_KEPT = 4_096
_LARGEST_KEPT_BYTES = 1_024
"""The largest encoded agent that is cached. A bank with code, name and address has some 300 bytes; the schema allows 10 000."""

_encode = msgspec.json.Encoder().encode


class _AccountId(msgspec.Struct, gc=False):
    IBAN: str | None = None


class _Account(msgspec.Struct, gc=False):
    Id: _AccountId | None = None


_read_account = msgspec.json.Decoder(_Account).decode
_read_agent = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


class Agents:
    """Completes agents from the lookups of one version. Caches the results, because payments name the same few banks."""

    def __init__(self, enrichment: Enrichment) -> None:
        self._enrichment = enrichment
        self._named = lru_cache(_KEPT)(self._find_named)
        self._agent_of = lru_cache(_KEPT)(_agent_of)

    def filled(self, agent: msgspec.Raw | None, account: msgspec.Raw | None) -> msgspec.Raw | None:
        """Return the completed agent of an account. Both arguments are valid under the schema.

        An agent that is missing or NOTPROVIDED becomes the account's institution, found by the IBAN. An agent with a BIC and
        without a name gets the name.
        """
        if agent is None:
            named: bytes | None = b""
        else:
            find = self._named if len(agent) <= _LARGEST_KEPT_BYTES else self._find_named
            named = find(bytes(agent))
        if named is not None:
            return msgspec.Raw(named) if named else self._institution_of(account) or agent
        return agent

    def _find_named(self, agent: bytes) -> bytes | None:
        """Return the agent with its name. None if the agent stays as it is, empty bytes if it has no identity."""
        said = _read_agent(agent).get("FinInstnId", {})
        if not said or _is_not_provided(said):
            return b""
        if "Nm" in said or "BICFI" not in said:
            return None
        found = self._enrichment.find_by_bic(said["BICFI"])
        return None if found is None else _encoded(said | {"Nm": found.name}, _read_agent(agent).get("BrnchId"))

    def _institution_of(self, account: msgspec.Raw | None) -> msgspec.Raw | None:
        iban = find_iban(account)
        found = None if iban is None else self._enrichment.find_by_iban(iban)
        return None if found is None else self._agent_of(found)


def find_iban(account: msgspec.Raw | None) -> str | None:
    identity = None if account is None else _read_account(account).Id
    return None if identity is None else identity.IBAN


def _is_not_provided(said: dict[str, Any]) -> bool:
    """Whether the agent is SEPA's placeholder for an unnamed agent: `Othr/Id` NOTPROVIDED."""
    return said.keys() == {"Othr"} and said["Othr"].get("Id") == NOT_PROVIDED


def _agent_of(institution: InstitutionValue) -> msgspec.Raw | None:
    encoded = _encoded({"BICFI": institution.bic, "Nm": institution.name})
    return None if encoded is None else msgspec.Raw(encoded)


def _encoded(institution: dict[str, Any], branch: dict[str, Any] | None = None) -> bytes | None:
    """Encode an agent without the parts that the schema refuses; None if nothing is left."""
    body = _encode({"FinInstnId": institution} | ({} if branch is None else {"BrnchId": branch}))
    valid = _AGENT.find_valid(body) or _AGENT.conformed(body)
    return None if valid == b"{}" else bytes(valid)
