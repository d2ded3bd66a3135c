"""The status report: a pain.002.001.10 of a single payment as ISO-tag JSON."""

from functools import lru_cache
from typing import Any

import msgspec

from domain.clock import Instant, instant_text
from resequencer.handlers.iso_codes import GROUP_STATUSES, STATUS_REASONS
from resequencer.handlers.notification_settings import NotificationSetting
from resequencer.handlers.original import Original
from resequencer.handlers.pain002_schema import REASON

_REJECTED = "RJCT"
_encode = msgspec.json.Encoder().encode
_REPORT = (
    b'{"CstmrPmtStsRpt":{"GrpHdr":{"MsgId":"%b","CreDtTm":"%b"%b},"OrgnlGrpInfAndSts":{%b%b},'
    b'"OrgnlPmtInfAndSts":[{%b,"TxInfAndSts":[{%b%b%b}]}]}}'
)


def encode_report(
    message_id: str, now: Instant, setting: NotificationSetting, reason_code: str | None, original: Original
) -> bytes:
    """`{"CstmrPmtStsRpt": …}` with its elements in the schema's order.

    `reason_code` is what the event itself says, untrusted; it counts where the setting has a reason or the status is RJCT
    (contract, section 4). `now` becomes CreDtTm, to the millisecond, in UTC.
    """
    is_groups = original.is_single and setting.transaction_status in GROUP_STATUSES
    return _REPORT % (
        message_id.encode(),
        instant_text(now).encode(),
        original.initiating_party,
        original.group,
        b',"GrpSts":"%b"' % setting.transaction_status.encode() if is_groups else b"",
        original.instruction,
        original.transaction,
        _settings_status(setting) if reason_code is None else _status(setting, reason_code),
        original.reference,
    )


def _status(setting: NotificationSetting, reason_code: str | None) -> bytes:
    """The members that the original does not know."""
    status: dict[str, Any] = {"TxSts": setting.transaction_status}
    reason = _reason(setting, reason_code)
    information: dict[str, Any] = {} if reason is None else {"Rsn": reason}
    if setting.additional_information:
        information["AddtlInf"] = setting.additional_information
    if information:
        status["StsRsnInf"] = [information]
    return _encode(status)[1:-1]


@lru_cache(1_024)
def _settings_status(setting: NotificationSetting) -> bytes:
    """As most events have it, who give no reason; what they give is not kept, for it may be long."""
    return _status(setting, None)


def _reason(setting: NotificationSetting, reason_code: str | None) -> Any:
    """An ISO code goes to Cd, any other to Prtry if it fits; one that fits nowhere leaves the setting's reason standing."""
    if reason_code is not None and (setting.reason_code is not None or setting.transaction_status == _REJECTED):
        said = REASON.conform({"Cd" if reason_code in STATUS_REASONS else "Prtry": reason_code})
        if said is not None:
            return said
    return None if setting.reason_code is None else {"Cd": setting.reason_code}
