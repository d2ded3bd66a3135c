"""What a person is told of deliveries straight from topics: by `status`, by `delivery blocked`, by a refusal."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import msgspec
import pytest

from guardian.headers import Way, moved_headers
from notification_service.commands import delivery as command
from notification_service.configuration.configuration import load
from notification_service.delivery.core.answers import Answer
from notification_service.delivery.direct.receiver import _partitions_of
from notification_service.status.delivery import BlockedStatus, DeliveredPartition, DeliveryStatus, DirectStatus, delivery_lines
from notification_service.supervision.locks import RunningService
from resequencer.errors import ConfigurationError
from resequencer.record import Origin, Partition
from tests.notification_service.delivery.direct.fakes import NOW, FakeTopic, Workers, run

AT = "2026-03-28T18:00:00.000Z"
BLOCKED = (
    DeliveredPartition("T-0", 3, 9, 4, 2, (BlockedStatus("T-0@3", "k", AT, 1, "HTTP 500"),), pause="too much"),
    DeliveredPartition("T-1", 0, 0, 0, skips_all=True),
    DeliveredPartition("T-g-requeued-0", 0, 1, 1, 1, (BlockedStatus("T-0@1", "l", AT, 12, "HTTP 403"),)),
)
STATUS = DeliveryStatus(direct=(DirectStatus("bank", "HTTP 503", AT, AT, None, BLOCKED, ("topic T is compacted",)),))


def test_status_tells_of_gate_blocked_records_pauses_orders_and_notes() -> None:
    assert delivery_lines(STATUS) == [
        f"receiver bank: shut since {AT}, next probe at {AT}: HTTP 503; 7 behind, 5 read",
        "receiver bank: topic T is compacted",
        f"receiver bank, T-0: 2 records blocked, the first T-0@3 since {AT} after 1 attempt: HTTP 500",
        "receiver bank, T-0: paused: too much",
        "receiver bank, T-1: what fails is skipped, as an operator has ordered",
        f"receiver bank, T-g-requeued-0: 1 record blocked, the first T-0@1 since {AT} after 12 attempts: HTTP 403",
    ]


def test_blocked_lists_the_records_and_where_they_lie(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = printed(monkeypatch, capsys, STATUS, "1")
    assert listed.out.splitlines() == [
        f"bank  T-0@3  k  since {AT}  1 attempt  HTTP 500",
        f"bank  T-0@1  l  since {AT}  12 attempts  in T-g-requeued-0, where it blocks nothing  HTTP 403",
    ]
    others = "; workers that `delivery run` has started write to their logs only\n"
    assert listed.err == f"resequencer: 3 blocked records, the first 2 are shown{others}"
    (first, second) = [json.loads(each) for each in printed(monkeypatch, capsys, STATUS, "1", as_json=True).out.splitlines()]
    assert (first["receiver"], first["lies_in"], second["lies_in"]) == ("bank", "T-0", "T-g-requeued-0")
    assert printed(monkeypatch, capsys, DeliveryStatus(), "1").out == "nothing is blocked\n"
    silent = printed(monkeypatch, capsys, DeliveryStatus(), None)
    assert (silent.out, silent.err) == ("", f"resequencer: 0 blocked records; the service does not run{others}")


def printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: DeliveryStatus,
    holder: str | None,
    *,
    as_json: bool = False,
) -> pytest.CaptureResult[str]:
    """Return what the command says of this status."""
    monkeypatch.setattr(command, "find_running", lambda *_: RunningService("running", None, holder))
    monkeypatch.setattr(command, "find_delivery_of", lambda *_: status)
    configuration = load(Path("conf/application.conf"), [])
    command.blocked(Namespace(receiver=None, json=as_json), configuration)
    return capsys.readouterr()


@pytest.mark.slow
def test_a_retry_topic_that_waits_for_its_time_is_not_told_as_paused_and_notes_of_the_transport_are_told() -> None:
    async def test() -> None:
        retries = FakeTopic("T-g-retry-1")
        workers = Workers(
            "policy = retry-topics",
            "retry-topics.intervals = [1h]",
            "blocked-bytes = 64K",
            topics=(FakeTopic("T"), retries),
        )
        for number in range(40):
            retries.add(f"k{number}", f"n{number}", value=b"x" * 4_000)
        moved = moved_headers((), Way(Origin(Partition("T", 0), 1), 1), "n", 0, "HTTP 500", NOW)
        log = retries.records[Partition(retries.name, 0)]
        log[:] = [msgspec.structs.replace(each, headers=(*each.headers, *moved)) for each in log]
        worker = workers.start()
        await worker.until(lambda: worker.open_counts == [0, 40], "it is read")
        (state, _), *_ = worker.stages[1].partitions
        assert state.pause is not None
        assert [each.pause for each in _partitions_of(worker.stages[1])] == [None]
        assert worker.stages[1].notes == ("a note",)
        await worker.kill()

    run(test)


@pytest.mark.slow
def test_a_partition_that_is_blocked_is_told_with_the_first_records_and_the_number_of_all() -> None:
    async def test() -> None:
        workers = Workers(
            "policy = blocking", "retry.first = 1h", "retry.most = 1h", "suspension.probe = 1h", "suspension.most = 1h"
        )
        for number in range(40):
            workers.source.add(f"k{number}", f"n{number}", written_at=NOW - 90_000 + number)
        workers.caller.answers = lambda _key, _id: Answer(503, retry_after_ms=3_600_000)
        worker = workers.start()
        await worker.until(lambda: worker.stages[0].partitions and worker.stages[0].partitions[0][0].blocked_count, "calls")
        (report,) = _partitions_of(worker.stages[0])
        assert report.blocked_count == 20
        assert [each.origin.offset for each in report.blocked] == list(range(20))
        assert report.oldest_at == NOW - 90_000
        await worker.kill()

    run(test)


def test_a_group_may_not_be_the_one_that_another_receiver_has_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match="which others read in: give each receiver its own"):
        load(
            Path("conf/application.conf"),
            [
                "ipf.processing-data.ingress.transport = kafka",
                "payment-status-notification.transport = kafka",
                "payment-status-notification.storage.namespace = ns",
                *(
                    f"payment-status-notification.delivery.receivers.{name}.{key}"
                    for name in ("a", "b")
                    for key in ('url = "http://127.0.0.1:1"', "policy = blocking")
                ),
                "payment-status-notification.delivery.receivers.a.group = ns-b",
            ],
        )
