"""The status report: a pain.002.001.10 of a single payment as ISO-tag JSON."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from domain.clock import Instant, instant_text
from resequencer.handlers.iso20022.codes import GROUP_STATUSES, NARRATIVE, STATUS_REASONS
from resequencer.handlers.iso20022.pain002_schema import REASON
from resequencer.handlers.iso20022.simple_types import NOT_PROVIDED
from resequencer.handlers.notification_settings import NotificationSetting
from resequencer.handlers.original import Original

_REJECTED = "RJCT"
_encode = msgspec.json.Encoder().encode
_REPORT = (
    b'{"CstmrPmtStsRpt":{"GrpHdr":{"MsgId":"%b","CreDtTm":"%b"%b},"OrgnlGrpInfAndSts":{%b%b},'
    b'"OrgnlPmtInfAndSts":[{%b,"TxInfAndSts":[{%b%b%b}]}]}}'
)


Words = Callable[[str], tuple[str, ...]]
"""Returns the meaning of a status reason, in lines that the schema allows."""


def encode_report(
    message_id: str, now: Instant, setting: NotificationSetting, reason_code: str | None, original: Original, words: Words
) -> bytes:
    """Return `{"CstmrPmtStsRpt": …}` with its elements in the schema's order.

    `reason_code` is the event's own reason, which is untrusted. It counts if the setting has a reason or the status is RJCT
    (docs/contract.md, section 8). `words` returns its meaning, which is used if the setting has no text of its own. A narrative
    reason without a narrative gets NOTPROVIDED. `now` becomes CreDtTm, to the millisecond, in UTC.
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
        _settings_status(setting) if reason_code is None else _status(setting, reason_code, words),
        original.reference,
    )


def _status(setting: NotificationSetting, reason_code: str | None, words: Words | None = None) -> bytes:
    """Encode the members of TxInfAndSts that do not come from the original: the status and its reason."""
    status: dict[str, Any] = {"TxSts": setting.transaction_status}
    reason = _reason(setting, reason_code)
    information: dict[str, Any] = {} if reason is None else {"Rsn": reason}
    lines = setting.additional_information or _words(setting, reason, words)
    if lines:
        information["AddtlInf"] = lines
    if information:
        status["StsRsnInf"] = [information]
    return _encode(status)[1:-1]


@lru_cache(1_024)
def _settings_status(setting: NotificationSetting) -> bytes:
    """Encode the status of an event without a reason; most events have none. Event reasons may be long and are not cached."""
    return _status(setting, None)


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
