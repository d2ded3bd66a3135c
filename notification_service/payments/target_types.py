"""The target types: the format of a notification's value."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeAlias

import msgspec

from notification_service.payments.custom_target import CustomTarget, import_callable
from notification_service.payments.iso20022.report_xml import render_report_xml
from notification_service.payments.produced_report import ProducedReport
from resequencer.errors import ConfigurationError
from resequencer.payment_data import PaymentData

TARGET_TYPE_KEY = "payment-status-notification.target-type"
TARGET_TYPES = ("report", "report-xml", "produced-report")

TargetType: TypeAlias = Callable[[bytes, PaymentData], bytes]
"""Makes the value of the record from the report (ISO-tag JSON) and the payment data."""


def find_target_type(name: str, custom_data_keys: tuple[str, ...], pds_data_keys: tuple[str, ...]) -> TargetType:
    """Return one of the three target types, or a user's own by `package.module:callable`.

    Raises:
        ConfigurationError: The target type does not exist or cannot be imported.
    """
    produced = ProducedReport(custom_data_keys, pds_data_keys)
    if ":" in name:
        return CustomTarget(name, import_callable(name, TARGET_TYPE_KEY, "a function that takes the mapping"), produced)
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
