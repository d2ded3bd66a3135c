"""The status report: a pain.002.001.10 of a single payment as ISO-tag JSON."""

from typing import Any

import msgspec

from domain.clock import Instant, instant_text
from resequencer.handlers.iso_codes import GROUP_STATUSES, STATUS_REASONS
from resequencer.handlers.notification_settings import NotificationSetting
from resequencer.handlers.original import Original
from resequencer.handlers.pain002_schema import REASON

_REJECTED = "RJCT"
_encoder = msgspec.json.Encoder()


def encode_report(
    message_id: str, now: Instant, setting: NotificationSetting, reason_code: str | None, original: Original
) -> bytes:
    """`{"CstmrPmtStsRpt": …}` with its elements in the schema's order.

    `reason_code` is what the event itself says, untrusted; it counts where the setting has a reason or the status is RJCT
    (contract, section 4). `now` becomes CreDtTm, to the millisecond, in UTC.
    """
    header: dict[str, Any] = {"MsgId": message_id, "CreDtTm": instant_text(now)}
    if original.initiating_party is not None:
        header["InitgPty"] = original.initiating_party
    group = dict(original.group)
    if original.is_single and setting.transaction_status in GROUP_STATUSES:
        group["GrpSts"] = setting.transaction_status
    instruction: dict[str, Any] = dict(original.instruction)
    instruction["TxInfAndSts"] = [_transaction(setting, reason_code, original)]
    return _encoder.encode({"CstmrPmtStsRpt": {"GrpHdr": header, "OrgnlGrpInfAndSts": group, "OrgnlPmtInfAndSts": [instruction]}})


def _transaction(setting: NotificationSetting, reason_code: str | None, original: Original) -> dict[str, Any]:
    transaction: dict[str, Any] = dict(original.transaction)
    transaction["TxSts"] = setting.transaction_status
    reason = _reason(setting, reason_code)
    information: dict[str, Any] = {} if reason is None else {"Rsn": reason}
    if setting.additional_information:
        information["AddtlInf"] = setting.additional_information
    if information:
        transaction["StsRsnInf"] = [information]
    if original.reference is not None:
        transaction["OrgnlTxRef"] = original.reference
    return transaction


def _reason(setting: NotificationSetting, reason_code: str | None) -> Any:
    """An ISO code goes to Cd, any other to Prtry if it fits; one that fits nowhere leaves the setting's reason standing."""
    if reason_code is not None and (setting.reason_code is not None or setting.transaction_status == _REJECTED):
        said = REASON.conform({"Cd" if reason_code in STATUS_REASONS else "Prtry": reason_code})
        if said is not None:
            return said
    return None if setting.reason_code is None else {"Cd": setting.reason_code}
