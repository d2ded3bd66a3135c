"""The target types: the format of a notification's value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

import msgspec

from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import PAIN_001_PARTS
from notification_service.payments.iso20022.codes import GROUP_STATUSES, NARRATIVE, STATUS_REASONS
from notification_service.payments.iso20022.pain002_schema import REASON, render_report_xml
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from notification_service.payments.notification_settings import NotificationSetting
from notification_service.payments.original import Original
from notification_service.payments.payment_data import Bodies, PaymentData
from resequencer.clock import Instant, instant_text
from resequencer.errors import ConfigurationError, PermanentError, TransientError
from resequencer.event import Event
from resequencer.users_code import FindWay, call_guarded, import_callable, refuse_awaitable, within_the_turn

_encoder = msgspec.json.Encoder()


class ProducedReport:
    """Target type `produced-report`. It includes the custom and PDS data of the configured keys, if there is any."""

    def __init__(self, custom_data_keys: tuple[str, ...], pds_data_keys: tuple[str, ...]) -> None:
        self._custom_data_keys = custom_data_keys
        self._pds_data_keys = pds_data_keys

    def __call__(self, report: bytes, data: PaymentData) -> bytes:
        """Return the JSON object `{"report", "pain001", "customData", "pdsData"}`, with the bodies unchanged.

        Raises:
            PermanentError: A body is not UTF-8, so the record would not be valid either.
        """
        return _encoder.encode(
            {
                "report": msgspec.Raw(report),
                "pain001": _select(data.mds, PAIN_001_PARTS),
                "customData": _select(data.custom, self._custom_data_keys),
                "pdsData": _select(data.pds, self._pds_data_keys),
            }
        )


def _select(bodies: Bodies, names: tuple[str, ...]) -> dict[str, msgspec.Raw]:
    known = dict(bodies)
    return {name: _checked(name, known[name]) for name in names if name in known}


def _checked(name: str, body: bytes) -> msgspec.Raw:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise PermanentError(f"the data {name} is not UTF-8: {error}") from error
    return msgspec.Raw(body)


_read = msgspec.json.Decoder(dict[str, Any], float_hook=float).decode
"""A number beyond the range of a float becomes infinite. Without the hook it would fail every later call for its unit."""


class CustomTarget:
    """Calls the user's callable with the produced report as new plain Python objects, and expects bytes.

    If the callable has a parameter `lookups`, it also gets the lookups of the current release. It `waits` if there is a way to
    call it beside the turn, which `make` does.
    """

    def __init__(
        self, name: str, function: Callable[..., object], produced: ProducedReport, find_way: FindWay = within_the_turn
    ) -> None:
        self._name = name
        self._function = function
        self._call = function
        self._produced = produced
        self._find_way = find_way
        self._way = find_way(function)

    @property
    def waits(self) -> bool:
        return self._way is not None

    def with_lookups(self, enrichment: Enrichment) -> CustomTarget:
        """Return the same target type with the lookups of another version."""
        bound = CustomTarget(self._name, self._function, self._produced, self._find_way)
        if _takes_lookups(self._function):
            bound._call = partial(self._function, lookups=enrichment)
        return bound

    def __call__(self, report: bytes, data: PaymentData) -> bytes:
        """Return the bytes that the callable returns.

        Raises:
            TransientError: The callable raised it (or `DependencyUnavailable`). The same call may succeed later.
            PermanentError: The callable raised anything else or returned no bytes, or the payment data cannot be read.
        """
        mapping = self._mapping(report, data)
        return self._plain(call_guarded(self._name, lambda: self._call(mapping), TransientError))

    async def make(self, report: bytes, data: PaymentData, event: Event) -> bytes:
        """Return the bytes that the callable returns beside the turn for this event. Raises the same."""
        assert self._way is not None, "only a target type that waits is called beside the turn"
        made: bytes = await self._way(self._name, event, partial(self._call, self._mapping(report, data)), self._plain)
        return made

    def _plain(self, value: object) -> bytes:
        if not isinstance(value, bytes):
            refuse_awaitable(self._name, value)
            raise PermanentError(f"{self._name} returned {type(value).__name__} instead of bytes")
        return b"".join((value,))  # A subclass of bytes, such as numpy's, could not be stored.

    def _mapping(self, report: bytes, data: PaymentData) -> dict[str, Any]:
        try:
            return _read(self._produced(report, data))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PermanentError(f"the payment data for {self._name} cannot be read: {error}") from error


def _takes_lookups(function: Callable[..., object]) -> bool:
    try:
        return "lookups" in signature(function).parameters
    except (TypeError, ValueError):  # The signature of a builtin may be unknown.
        return False


TARGET_TYPE_KEY = "payment-status-notification.target-type"
TARGET_TYPES = ("report", "report-xml", "produced-report")

TargetType: TypeAlias = Callable[[bytes, PaymentData], bytes]
"""Makes the value of the record from the report (ISO-tag JSON) and the payment data."""


def find_target_type(
    name: str, custom_data_keys: tuple[str, ...], pds_data_keys: tuple[str, ...], find_way: FindWay = within_the_turn
) -> TargetType:
    """Return one of the three target types, or a user's own by `package.module:callable`.

    Raises:
        ConfigurationError: The target type does not exist or cannot be imported.
    """
    produced = ProducedReport(custom_data_keys, pds_data_keys)
    if ":" in name:
        function = import_callable(name, TARGET_TYPE_KEY, "a function that takes the mapping")
        return CustomTarget(name, function, produced, find_way)
    known: dict[str, TargetType] = dict(zip(TARGET_TYPES, (as_it_is, _as_xml, produced), strict=True))
    if name not in known:
        near = get_close_matches(name, TARGET_TYPES, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigurationError(
            TARGET_TYPE_KEY, f"{name!r} is none of {', '.join(TARGET_TYPES)} or package.module:callable{meant}"
        )
    return known[name]


def as_it_is(report: bytes, data: PaymentData) -> bytes:  # noqa: ARG001 - one of several with this signature
    return report


def _as_xml(report: bytes, data: PaymentData) -> bytes:  # noqa: ARG001 - one of several with this signature
    decoded: dict[str, Any] = msgspec.json.decode(report)
    return render_report_xml(decoded).encode()


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
        reason = REASON.conform({"Cd" if reason_code in STATUS_REASONS else "Prtry": reason_code})
        if reason is not None:
            return reason
    return None if setting.reason_code is None else {"Cd": setting.reason_code}
