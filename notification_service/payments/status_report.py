"""The status report: a pain.002.001.10 of a single payment as ISO-tag JSON."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from notification_service.payments.iso20022.codes import GROUP_STATUSES, NARRATIVE, STATUS_REASONS
from notification_service.payments.iso20022.pain002_schema import REASON
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from notification_service.payments.notification_settings import NotificationSetting
from notification_service.payments.original import Original
from resequencer.clock import Instant, instant_text

_REJECTED = "RJCT"
_encode = msgspec.json.Encoder().encode
_REPORT = (
    b'{"CstmrPmtStsRpt":{"GrpHdr":{"MsgId":"%b","CreDtTm":"%b"%b},"OrgnlGrpInfAndSts":{%b%b},'
    b'"OrgnlPmtInfAndSts":[{%b,"TxInfAndSts":[{%b%b%b}]}]}}'
)


Words = Callable[[str], tuple[str, ...]]
"""Returns the meaning of a status reason, in lines that the schema allows."""


def encode_report(message_id: str, now: Instant, status: bytes, group_status: bytes, original: Original) -> bytes:
    """Return `{"CstmrPmtStsRpt": …}` with its elements in the schema's order.

    `status` and `group_status` are of `encode_status` and `encode_group_status`. `now` becomes CreDtTm, to the millisecond, in
    UTC.
    """
    return _REPORT % (
        message_id.encode(),
        instant_text(now).encode(),
        original.initiating_party,
        original.group,
        group_status if original.is_single else b"",
        original.instruction,
        original.transaction,
        status,
        original.reference,
    )


def encode_group_status(setting: NotificationSetting) -> bytes:
    """Encode the status of a group of one transaction; empty if a group cannot have the transaction's status."""
    status = setting.transaction_status
    return b',"GrpSts":"%b"' % status.encode() if status in GROUP_STATUSES else b""


def encode_status(setting: NotificationSetting, reason_code: str | None = None, words: Words | None = None) -> bytes:
    """Encode the members of TxInfAndSts that do not come from the original: the status and its reason.

    `reason_code` is the event's own reason, which is untrusted. It counts if the setting has a reason or the status is RJCT
    (docs/contract.md, section 8). `words` returns its meaning, which is used if the setting has no text of its own. A narrative
    reason without a narrative gets NOTPROVIDED.
    """
    status: dict[str, Any] = {"TxSts": setting.transaction_status}
    reason = _reason(setting, reason_code)
    information: dict[str, Any] = {} if reason is None else {"Rsn": reason}
    lines = setting.additional_information or _words(setting, reason, words)
    if lines:
        information["AddtlInf"] = lines
    if information:
        status["StsRsnInf"] = [information]
    return _encode(status)[1:-1]


def _words(setting: NotificationSetting, reason: Mapping[str, str] | None, words: Words | None) -> tuple[str, ...]:
    """Return the meaning of the reason. A narrative has no fixed meaning, but ISO requires a text: NOTPROVIDED."""
    code = None if reason is None else reason.get("Cd")
    if code is None:
        return ()
    if code == NARRATIVE:
        return (NOT_PROVIDED,)
    return setting.reason_words if code == setting.reason_code or words is None else words(code)


def _reason(setting: NotificationSetting, reason_code: str | None) -> Any:
    """Return the reason: an ISO code in Cd, another code in Prtry if it fits. Otherwise the setting's reason counts."""
    if reason_code is not None and (setting.reason_code is not None or setting.transaction_status == _REJECTED):
        said = REASON.conform({"Cd" if reason_code in STATUS_REASONS else "Prtry": reason_code})
        if said is not None:
            return said
    return None if setting.reason_code is None else {"Cd": setting.reason_code}
