"""Makes a record that contradicts another: the same envelope id, other content."""

from typing import Any

import msgspec

from notification_service.simulator.expectation import ExpectedProcess
from notification_service.simulator.generate.flows import FRAUD_CHECK, PAYMENT_INITIATION, STATUSES
from notification_service.simulator.generate.units import SimulatedEnvelope
from resequencer.notification import notification_id

_OTHER_EVENTS = {
    PAYMENT_INITIATION: ("PaymentPending", "PaymentAccepted"),
    FRAUD_CHECK: ("FraudCheckFailed", "FraudCheckPassed"),
}
"""Two events of each flow that the settings have, so that the notification shows which record counted."""

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_processes = msgspec.json.Decoder(list[dict[str, Any]]).decode


def contradict(unit: str, envelope: SimulatedEnvelope) -> SimulatedEnvelope:
    """Return the same envelope with another first event; if there was none, with one.

    Flow, sequence and data stay, so nothing is missing whichever record counts.
    """
    expected = envelope.expected
    event = next(each for each in _OTHER_EVENTS[expected.flow] if [each] != [one.event for one in expected.processes[:1]])
    fields = _read_fields(envelope.value)
    processes = _read_processes(fields["processObjects"]) or [{"objectType": "PROCESS_FLOW_EVENT"}]
    processes[0]["object"] = {"eventName": event, "processFlowName": expected.flow}
    fields["processObjects"] = msgspec.Raw(msgspec.json.encode(processes))
    status, reason = STATUSES[expected.flow, event]
    first = ExpectedProcess(event, expected.flow, status, reason, notification_id(unit, expected.envelope_id, 0))
    return SimulatedEnvelope(
        msgspec.json.encode(fields),
        envelope.headers,
        msgspec.structs.replace(expected, processes=(first, *expected.processes[1:])),
    )
