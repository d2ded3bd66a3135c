"""The output of one payment in a real worker: hundreds of megabytes that are released at once need little memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from harness.driving import wire
from harness.nightly import at_night
from harness.processes.operated_service import FLOW, NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from notification_service.connectors.line_format import Line, encode_line
from notification_service.payments.envelope import PAIN_001_PARTS

pytestmark = pytest.mark.slow

ENVELOPES, EVENTS, PAYMENT_BYTES = 31, 100, 200_000
MEGABYTE = 1 << 20
MAX_MEMORY = 400 * MEGABYTE
"""Without the limit it took 2 GB. A worker takes 60 MB; a cycle releases at most 80 MB, which are in memory more than once."""


def line(sequence: int, events: int, **objects: object) -> bytes:
    event = {"objectType": "PROCESS_FLOW_EVENT", "object": {"eventName": "PaymentAccepted", "processFlowName": FLOW}}
    process = [{"uniqueId": f"uow-1#{sequence}#{number}", **event} for number in range(events)]
    return encode_line(Line(wire("uow-1", FLOW, sequence, "", processObjects=process, **objects), b"uow-1"))


def lines() -> Iterator[bytes]:
    """Return lines whose first envelope comes last: it holds the payment, and releases all others."""
    bodies: list[dict[str, object]] = [{"GrpHdr": {"MsgId": "M"}, "Unknown": "x" * PAYMENT_BYTES}, {}, {}]
    mds = [{"objectType": part, "object": body} for part, body in zip(PAIN_001_PARTS, bodies, strict=True)]
    for sequence in range(ENVELOPES, 1, -1):
        yield line(sequence, EVENTS)
    yield line(1, 1, mdsObjects=mds)


def peak_bytes(service: OperatedService) -> int:
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text().splitlines()
    return int(next(each for each in status if each.startswith("VmHWM")).split()[1]) * 1024


def identities(file: Path) -> list[str]:
    """Return the ids of the complete notifications."""
    if not file.exists():
        return []
    with file.open("rb") as content:
        return [msgspec.json.decode(each, type=dict)["headers"]["notification-id"] for each in content if each.endswith(b"\n")]


@pytest.mark.parametrize("storage", ["embedded", *at_night("processes", "none")])
def test_three_thousand_notifications_of_a_large_payment_take_little_memory_and_a_kill_costs_nothing(
    new_service: Callable[..., OperatedService], storage: str
) -> None:
    service = new_service(
        f"{NOTIFICATION}.target-type=produced-report",
        f"{RESEQUENCER}.storage-type={storage}",
        f"{RESEQUENCER}.stash-timeout=5m",
        f"{RESEQUENCER}.idle-timeout=5m",
    )
    service.in_directory.mkdir(parents=True)
    (service.in_directory / "partition-0.jsonl").write_bytes(b"".join(lines()))
    output = service.out_directory / "notifications.jsonl"
    service.start()
    wait_until(lambda: output.exists() and output.stat().st_size > 200 * MEGABYTE, "a third has left")
    peaks = [peak_bytes(service)]
    service.kill()
    service.start_and_wait().wait_until_idle()
    peaks.append(peak_bytes(service))
    assert service.stop() == 0
    assert max(peaks) < MAX_MEMORY
    notified = identities(output)
    assert len(set(notified)) == 1 + (ENVELOPES - 1) * EVENTS
    if storage == "embedded":
        assert len(notified) == len(set(notified))
