"""The customer of a payment, found by the ids of the initiating party, else by the debtor's account."""

from collections.abc import Iterator

import msgspec

from notification_service.lookups.shapes import CustomerValue, account_of
from notification_service.payments.enrichment import Enrichment

PARTY = "party"
ACCOUNT = "account"


class _Other(msgspec.Struct, gc=False):
    Id: str | None = None


class _Identities(msgspec.Struct, gc=False):
    AnyBIC: str | None = None
    LEI: str | None = None
    Othr: list[_Other] = []


class _Choice(msgspec.Struct, gc=False):
    OrgId: _Identities | None = None
    PrvtId: _Identities | None = None


class _Party(msgspec.Struct, gc=False):
    Id: _Choice | None = None


class _AccountChoice(msgspec.Struct, gc=False):
    IBAN: str | None = None
    Othr: _Other | None = None


class _Account(msgspec.Struct, gc=False):
    Id: _AccountChoice | None = None


_read_party = msgspec.json.Decoder(_Party).decode
_read_account = msgspec.json.Decoder(_Account).decode


def find_customer(party: msgspec.Raw | None, account: msgspec.Raw | None, enrichment: Enrichment) -> CustomerValue | None:
    """Return the first customer that the lookups have, or None. Both arguments are valid under the schema."""
    for kind, identity in _identities(party, account):
        found = enrichment.find_customer(kind, identity)
        if found is not None:
            return found
    return None


def _identities(party: msgspec.Raw | None, account: msgspec.Raw | None) -> Iterator[tuple[str, str]]:
    if party is not None and (choice := _read_party(party).Id) is not None:
        for said in (choice.OrgId, choice.PrvtId):
            if said is not None:
                for identity in (said.AnyBIC, said.LEI, *(each.Id for each in said.Othr)):
                    if identity is not None:
                        yield PARTY, identity
    if account is not None and (its := _read_account(account).Id) is not None:
        identity = its.IBAN or (None if its.Othr is None else its.Othr.Id)
        if identity is not None:
            yield ACCOUNT, account_of(identity)
