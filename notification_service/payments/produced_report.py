"""The produced report: a status report with the payment data from which it was made."""

import msgspec

from resequencer.envelope import PAIN_001_PARTS
from resequencer.errors import PermanentError
from resequencer.payment_data import Bodies, PaymentData

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
