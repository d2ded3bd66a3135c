"""Fills in who an agent is, where the payment does not say it and the lookups know. Nothing that was said is changed."""

from typing import Any

import msgspec

from enrichment.shapes import InstitutionValue
from resequencer.handlers.complex_types import Sequence
from resequencer.handlers.enrichment import Enrichment
from resequencer.handlers.pain002_schema import TYPES
from resequencer.handlers.part_reader import PartReader
from resequencer.handlers.simple_types import NOT_PROVIDED

_type = TYPES["BranchAndFinancialInstitutionIdentification6"]
assert isinstance(_type, Sequence)
_AGENT = PartReader("an agent", _type)
_encode = msgspec.json.Encoder().encode


class _AccountId(msgspec.Struct, gc=False):
    IBAN: str | None = None


class _Account(msgspec.Struct, gc=False):
    Id: _AccountId | None = None


_read_account = msgspec.json.Decoder(_Account).decode
_read_agent = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


def filled_agent(agent: msgspec.Raw | None, account: msgspec.Raw | None, enrichment: Enrichment) -> msgspec.Raw | None:
    """The agent of an account, both as the schema accepts them.

    One that is missing, or says only that nothing was provided, is the institution that keeps the account by its IBAN; one
    with a BIC and without a name gets the name.
    """
    said = {} if agent is None else _read_agent(agent).get("FinInstnId", {})
    if not said or _is_not_provided(said):
        found = _institution_of(account, enrichment)
        return agent if found is None else _agent_of({"BICFI": found.bic, "Nm": found.name})
    if agent is None or "Nm" in said or "BICFI" not in said:
        return agent
    named = enrichment.find_by_bic(said["BICFI"])
    return agent if named is None else _agent_of(said | {"Nm": named.name}, _read_agent(agent).get("BrnchId")) or agent


def find_iban(account: msgspec.Raw | None) -> str | None:
    identity = None if account is None else _read_account(account).Id
    return None if identity is None else identity.IBAN


def _institution_of(account: msgspec.Raw | None, enrichment: Enrichment) -> InstitutionValue | None:
    iban = find_iban(account)
    return None if iban is None else enrichment.find_by_iban(iban)


def _is_not_provided(said: dict[str, Any]) -> bool:
    """As SEPA writes it for an agent that need not be named: `Othr/Id` NOTPROVIDED."""
    return said.keys() == {"Othr"} and said["Othr"].get("Id") == NOT_PROVIDED


def _agent_of(institution: dict[str, Any], branch: dict[str, Any] | None = None) -> msgspec.Raw | None:
    """What the schema refuses of it is left out."""
    body = _encode({"FinInstnId": institution} | ({} if branch is None else {"BrnchId": branch}))
    valid = _AGENT.find_valid(body) or _AGENT.conformed(body)
    return None if valid == b"{}" else msgspec.Raw(valid)
