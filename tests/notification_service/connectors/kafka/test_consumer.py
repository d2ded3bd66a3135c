"""A group member, on a client that only reports whether it is joining, and records the time limits of its calls."""

from typing import Any

import pytest

from notification_service.connectors.kafka import consumer
from notification_service.connectors.kafka.consumer import GroupMember, PollWait
from tests.notification_service.connectors.kafka.stage import settings_of


class JoiningClient:
    def __init__(self) -> None:
        self.joins = True
        self.polls_ms: list[int] = []

    def subscribe(self, _: list[str], listener: Any) -> None:
        self.listener = listener

    def continue_join(self) -> bool:
        return self.joins

    def poll(self, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        self.polls_ms.append(timeout_ms)
        return {}

    def take_unreadable(self) -> dict[Any, Any]:
        return {}

    def assignment(self) -> set[Any]:
        return set()

    paused = assignment


@pytest.fixture
def client() -> JoiningClient:
    return JoiningClient()


@pytest.fixture
def member(client: JoiningClient, monkeypatch: pytest.MonkeyPatch) -> GroupMember:
    monkeypatch.setattr(consumer, "make_client", lambda *_: client)
    return GroupMember(settings_of("nowhere:9092", ["in", "out", "dead"], "group", 0, {}, {}), PollWait())


def test_a_join_is_waited_for_the_longer_the_more_often_it_was_not_answered(member: GroupMember, client: JoiningClient) -> None:
    for _ in range(7):
        member.poll([], 1, 0)
    assert client.polls_ms == [100, 200, 400, 800, 1_600, 2_000, 2_000]


def test_who_has_joined_waits_no_longer_than_it_was_told_to(member: GroupMember, client: JoiningClient) -> None:
    member.poll([], 1, 0)
    client.joins = False
    member.poll([], 1, 7)
    client.joins = True
    member.poll([], 1, 0)
    assert client.polls_ms == [100, 7, 100]
