"""The creation of a counter, when the server answers with an error that says nothing: answers that a test chooses."""

from __future__ import annotations

import httpx
import pytest
from harness.waiting import DEADLINE_SECONDS

from resequencer.storage_port import StorageUnavailable
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import ServerSettings


def rest(*answers: httpx.Response) -> tuple[InfinispanRest, list[str]]:
    """A client, and the methods of its requests; the server gives these answers, one after the other."""
    asked: list[str] = []
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return next(left)

    made = InfinispanRest(ServerSettings(url="http://127.0.0.1:1", cache="state"))
    made._client = httpx.Client(transport=httpx.MockTransport(answer), timeout=DEADLINE_SECONDS)
    return made, asked


def test_a_counter_that_was_refused_at_one_instant_with_another_is_created_at_the_next_try() -> None:
    client, asked = rest(httpx.Response(500), httpx.Response(404), httpx.Response(200))
    client.create_counter("T-0")
    assert asked == ["POST", "GET", "POST"]


def test_one_that_exists_all_the_same_is_not_created_again() -> None:
    client, asked = rest(httpx.Response(500), httpx.Response(200, text="0"))
    client.create_counter("T-0")
    assert asked == ["POST", "GET"]


def test_a_server_that_goes_on_refusing_is_unavailable() -> None:
    client, asked = rest(httpx.Response(500), httpx.Response(404), httpx.Response(500))
    with pytest.raises(StorageUnavailable, match="500"):
        client.create_counter("T-0")
    assert asked == ["POST", "GET", "POST"]
