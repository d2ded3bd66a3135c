"""The pages and operations of delivery straight from topics: what is blocked, and what an operator orders about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import FORM, client_of, make_sources, text_of, token_on
from msgspec.structs import replace
from starlette.testclient import TestClient

from notification_service.connectors.dead_letters.port import AskedFor, Sign
from notification_service.console.sources import Sources
from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.jobs import Pause
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOutcome, DirectResult
from notification_service.delivery.errors import OrderRefused
from notification_service.status.delivery import BlockedStatus, DeliveredPartition, DeliveryStatus, DirectStatus, ScheduleStatus
from resequencer.record import Partition
from tests.notification_service.console.test_delivery import Viewer

AT = "2026-03-28T23:33:55.941Z"
PAGE = "/delivery/topics?name=bank"
BLOCKED = BlockedStatus("T-0@17", "k<1>", AT, 3, "HTTP 500: DE89370400440532013000")
REPORTED = DirectStatus(
    "bank",
    "HTTP 503: it sleeps",
    AT,
    AT,
    partitions=(
        DeliveredPartition(
            "T-0", 17, 30, 5, 1, (BLOCKED,), pause="its position cannot list more", backlog=make_backlog(13, AT, -0.5)
        ),
        DeliveredPartition("T-1", 4, 4, 0, skips_all=True, backlog=make_backlog(0, None, 0.0)),
        DeliveredPartition("T-g-retry-1-0", 1, 2, 1, 1, (BLOCKED,)),
    ),
)


class Owner:
    """The owner of the partitions, which executes orders as the test says."""

    def __init__(self) -> None:
        self.given: list[tuple[str, Partition | None, DirectOrder]] = []
        self.partitions = [Partition("T", 0), Partition("T", 1)]
        self.result: DirectResult | None = DirectResult.DONE

    def order(
        self, receiver: str, given: Sequence[tuple[Partition | None, DirectOrder]], seconds: float
    ) -> list[DirectOutcome | None]:
        del seconds
        for partition, _ in given:
            if partition is not None and partition.topic != "T":
                raise OrderRefused(f"{partition} is no partition of T")
        self.given += [(receiver, partition, order) for partition, order in given]
        if self.result is None:
            return [None for _ in given]
        return [DirectOutcome(id=order.id, result=self.result, text="what came of it", at=AT) for _, order in given]


@pytest.fixture
def owner() -> Owner:
    return Owner()


def sources(directory: Path, owner: Owner, *reported: DirectStatus) -> Sources:
    return make_sources(directory)._replace(
        find_delivery=lambda: DeliveryStatus(direct=reported),
        direct_receivers=("bank", "mail"),
        order_delivery=owner.order,
        find_partitions_of=lambda _receiver: owner.partitions,
    )


@pytest.fixture
def client(tmp_path: Path, owner: Owner) -> TestClient:
    return client_of(sources(tmp_path, owner, REPORTED))


def change(client: TestClient, path: str, **form: str) -> Any:
    return client.post(path, data={FORM: token_on(client, PAGE), "receiver": "bank", **form})


def post(client: TestClient, path: str, **body: Any) -> tuple[int, Any]:
    token = client.get("/api/v1/token").json()["token"]
    answer = client.post(f"/api/v1/delivery/{path}", json={"receiver": "bank", **body}, headers={"x-form-token": token})
    return answer.status_code, answer.json()


def test_what_is_blocked_paused_and_skipped_is_shown(client: TestClient) -> None:
    overview = text_of(client.get("/delivery").text)
    assert "2 receivers straight from topics" in overview
    assert "bank shut since 2026-03-28 23:33:55: HTTP 503: it sleeps 14 0 s 26 s 6 2 1 –" in overview
    assert "mail – 0 – unknown 0 0 0 no worker of this machine reports a partition of it" in overview
    page = text_of(client.get(PAGE).text)
    assert (
        "Waiting 13 offsets Oldest waits 0 s, since 2026-03-28 23:33:55 Backlog falls by 0.5 per second Delivered in 26 s" in page
    )
    assert "T-0 17 13 5 1 paused : its position cannot list more" in page
    assert "T-1 4 0 0 0 is read; what fails is skipped , as an operator has ordered" in page
    assert "T-0@17 k<1> 2026-03-28 23:33:55 3 HTTP 500: DE89370400440532013000" in page
    assert client.get("/delivery/topics?name=nobody").status_code == 404
    assert client.get("/api/v1/delivery").json()["topics"][0]["partitions"][0]["records"][0]["position"] == "T-0@17"


def test_a_record_in_a_retry_topic_has_no_form(client: TestClient) -> None:
    assert client.get(PAGE).text.count('name="position"') == 1


def test_orders_are_given_in_the_operators_name_and_the_audit_log_has_them(
    client: TestClient, owner: Owner, tmp_path: Path
) -> None:
    for path, form in (("skip", {"position": "T-0@17"}), ("skip-all", {"partition": "T-0"}), ("block", {"partition": "T-0"})):
        answer = change(client, f"/delivery/{path}", because=" it is ill ", **form)
        assert answer.status_code == 200
        assert "✓ what came of it." in text_of(answer.text)
        assert post(client, path, because="it is ill", **form) == (200, {"outcome": "what came of it"})
    ordered = [
        (receiver, str(partition), each.order.value, each.offset, each.because) for receiver, partition, each in owner.given
    ]
    assert ordered[::2] == ordered[1::2]
    assert ordered[::2] == [
        ("bank", "T-0", "skip", 17, "it is ill"),
        ("bank", "T-0", "skip-all", None, "it is ill"),
        ("bank", "T-0", "block", None, "it is ill"),
    ]
    assert len({each.id for _, _, each in owner.given}) == 6
    log = [json.loads(line) for each in tmp_path.glob("console-audit-*.jsonl") for line in each.read_text().splitlines()]
    noted = [each for each in log if each["action"].startswith("delivery.")]
    assert len(noted) == 6
    assert {each["by"] for each in noted} == {each.by for _, _, each in owner.given}


def test_a_topic_stands_for_each_partition_that_it_has_now(client: TestClient, owner: Owner) -> None:
    assert post(client, "skip-all", partition="T", because="x") == (200, {"outcome": "what came of it; what came of it"})
    owner.partitions.append(Partition("T", 2))
    change(client, "/delivery/block", partition="T", because="x")
    assert [str(partition) for _, partition, _ in owner.given] == ["T-0", "T-1", "T-0", "T-1", "T-2"]


def test_a_receiver_is_paused_resumed_and_tried_now_and_the_audit_log_has_it(
    client: TestClient, owner: Owner, tmp_path: Path
) -> None:
    for path, form in (("pause", {}), ("resume", {}), ("retry-now", {}), ("retry-now", {"position": "T-0@17"})):
        answer = change(client, f"/delivery/{path}", because="it is repaired", **form)
        assert "✓ what came of it." in text_of(answer.text)
        assert post(client, path, because="it is repaired", **form) == (200, {"outcome": "what came of it"})
    assert [(str(partition), each.order.value, each.offset) for _, partition, each in owner.given[::2]] == [
        ("None", "pause", None),
        ("None", "resume", None),
        ("None", "retry-now", None),
        ("T-0", "retry-now", 17),
    ]
    log = [json.loads(line) for each in tmp_path.glob("console-audit-*.jsonl") for line in each.read_text().splitlines()]
    assert [each["action"] for each in log][::2] == ["delivery.pause", "delivery.resume", *["delivery.retry-now"] * 2]
    assert post(client, "retry-now", row=1)[0] == 400


def test_a_paused_receiver_says_since_when_by_whom_and_why(tmp_path: Path, owner: Owner) -> None:
    client = client_of(sources(tmp_path, owner, replace(REPORTED, pause=Pause(AT, "ann", "it is <repaired>"))))
    assert "bank paused by ann since 2026-03-28 23:33:55; shut" in text_of(client.get("/delivery").text)
    page = client.get(PAGE).text
    assert "Paused by ann since 2026-03-28 23:33:55 (0 s): it is <repaired>. No call begins" in text_of(page)
    assert "the receiver is called" not in text_of(page)
    assert ("/delivery/resume" in page, "/delivery/pause" in page, "/delivery/retry-now" in page) == (True, False, False)
    assert client.get("/api/v1/delivery").json()["topics"][0]["pause"]["by"] == "ann"


def test_what_the_owner_refuses_and_what_no_worker_has_executed_is_told(client: TestClient, owner: Owner) -> None:
    owner.result = DirectResult.REFUSED
    assert change(client, "/delivery/block", partition="T-0", because="x").status_code == 409
    assert post(client, "block", partition="T-0", because="x") == (409, {"error": "what came of it"})
    assert post(client, "block", partition="U-0", because="x") == (409, {"error": "U-0 is no partition of T"})
    owner.result = None
    (status, body) = post(client, "skip", position="T-0@17", because="x")
    assert (status, "the next owner of T-0 will" in body["outcome"]) == (200, True)


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("skip", {"position": "T-0", "because": "x"}, 400),
        ("skip-all", {"partition": "U", "because": "x"}, 400),
        ("pause", {"because": " "}, 400),
        ("retry-now", {"position": "T-0", "because": "x"}, 400),
        ("block", {"partition": "T-0", "because": " "}, 400),
        ("block", {"receiver": "nobody", "partition": "T-0", "because": "x"}, 404),
    ],
)
def test_what_cannot_be_meant_is_refused(client: TestClient, owner: Owner, path: str, form: dict[str, str], status: int) -> None:
    assert change(client, f"/delivery/{path}", **form).status_code == status
    assert post(client, path, **form)[0] == status
    assert owner.given == []


def test_who_may_only_look_gives_no_orders_and_sees_no_answers(tmp_path: Path, owner: Owner) -> None:
    client = client_of(sources(tmp_path, owner, REPORTED), Viewer())
    for path in ("/delivery", PAGE, "/api/v1/delivery"):
        page = client.get(path)
        assert page.status_code == 200
        assert 'method="post"' not in page.text
        assert "DE89370400440532013000" not in page.text
        assert "it sleeps" not in page.text
    assert client.post("/delivery/skip", data={"receiver": "bank", "position": "T-0@17", "because": "x"}).status_code == 403
    assert owner.given == []


def test_the_dead_letters_of_a_receiver_are_asked_for_by_its_name_or_by_their_numbers(tmp_path: Path, owner: Owner) -> None:
    asked: list[AskedFor] = []

    class Nothing:
        where = "topic T-g-dlq"

        def letters(self) -> Any:
            return iter(())

        actions = begin = letters

        def requeue(self, letters: Any) -> Any:
            return iter(letters)

        def close(self) -> None:
            pass

    def open_dead_letters(asked_for: AskedFor, sign: Sign) -> Any:
        del sign
        asked.append(asked_for)
        return Nothing()

    client = client_of(sources(tmp_path, owner)._replace(open_dead_letters=open_dead_letters))
    page = client.get("/dead-letters?receiver=bank")
    assert "could not be delivered to receiver bank" in text_of(page.text)
    assert client.get("/dead-letters/confirm?receiver=bank&action=requeue").text.count('name="receiver" value="bank"') == 1
    assert client.get("/api/v1/dead-letters?receiver=bank").status_code == 200
    assert [each.receiver for each in asked] == ["bank"] * 3
    asked.clear()
    assert client.get("/dead-letters").status_code == 200
    client.get("/dead-letter?number=T-g-dlq-0%230")
    token = client.get("/api/v1/token").json()["token"]
    body = {"numbers": ["T-g-dlq-0#0"]}
    assert client.post("/api/v1/dead-letters/requeue", json=body, headers={"x-form-token": token}).status_code == 409
    assert [(each.receiver, each.numbers) for each in asked] == [(None, ()), (None, ("T-g-dlq-0#0",)), (None, ("T-g-dlq-0#0",))]
    for path in ("/dead-letters?receiver=nobody", "/api/v1/dead-letters?receiver=nobody"):
        assert client.get(path).status_code == 404


def test_schedules_are_on_the_page_and_in_the_api_also_without_a_receiver(tmp_path: Path) -> None:
    schedules = (
        ScheduleStatus("end-of-day", "0 18 * * MON-FRI (UTC)", AT, 3, 234, "2026-03-30T18:00:00.000Z"),
        ScheduleStatus("late", "0 0 1 * * (UTC)", overdue_since=AT, problem="topic T does not exist <b>"),
    )
    found = make_sources(tmp_path)._replace(find_delivery=lambda: DeliveryStatus(schedules=schedules))
    client = client_of(found)
    page = text_of(client.get("/delivery").text)
    assert "2 schedules" in page
    assert "end-of-day 0 18 * * MON-FRI (UTC)" in page
    assert " 234 " in page
    assert "and not done: topic T does not exist <b>" in page
    answer = client.get("/api/v1/delivery").json()
    assert [each["schedule"] for each in answer["schedules"]] == ["end-of-day", "late"]
    assert (answer["gates"], answer["jobs"], answer["topics"]) == ([], [], [])
