"""Which role each address needs: what docs/operations.md and the API's description say is so, for each route and role."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from harness.api_stage import API, ApiStage
from starlette.applications import Starlette
from starlette.routing import Route

from notification_service.console.application import DESCRIPTION

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
ROLES = ("viewer", "operator", "payments")
MAY = {"viewer": {"viewer"}, "operator": {"operator", "viewer"}, "payments": {"payments"}}
"""What each role may do."""

Address = tuple[str, str]


def documented() -> dict[Address, str]:
    """The role that each address needs, as we tell it."""
    page = OPERATIONS.read_text(encoding="utf-8").partition("## The console: logins and roles")[2].partition("\n## ")[0]
    rows = [re.fullmatch(r"\| (`(?:GET|POST) .*) \| (\w+) \|", line) for line in page.splitlines()]
    pages = {(method, path): row[2] for row in rows if row for method, path in re.findall(r"`(GET|POST) ([^`]+)`", row[1])}
    described = json.loads(DESCRIPTION.read_bytes())["paths"]
    return pages | {
        (method.upper(), f"{API}{path}"): operation["x-role"]
        for path, methods in described.items()
        for method, operation in methods.items()
    }


DOCUMENTED = documented()


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starlette]:
    stage = ApiStage(tmp_path_factory.mktemp("console"))
    yield stage.application()
    stage.close()


def status_of(application: Starlette, method: str, path: str, headers: Mapping[str, str]) -> int:
    """Return the status of a request without a body, whose client is gone then: a stream of events would never end."""
    found: list[int] = []

    async def receive() -> dict[str, Any]:
        return asked.pop() if asked else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    asked: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), *((name.encode(), value.encode()) for name, value in headers.items())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asyncio.run(application(scope, receive, send))
    (status,) = found
    return status


def test_each_route_is_told_of_and_nothing_else(application: Starlette) -> None:
    routes = {
        (method, each.path)
        for each in application.routes
        if isinstance(each, Route)
        for method in (each.methods or set()) - {"HEAD"}
    }
    assert routes == set(DOCUMENTED)


@pytest.mark.parametrize("address", DOCUMENTED, ids=" ".join)
def test_an_address_is_for_those_with_its_role_alone(application: Starlette, address: Address) -> None:
    assert status_of(application, *address, {}) == 401
    assert status_of(application, *address, {"x-roles": ""}) == 403
    for role in ROLES:
        is_refused = status_of(application, *address, {"x-roles": role}) == 403
        assert is_refused is (DOCUMENTED[address] not in MAY[role]), role


def test_what_pages_are_made_of_needs_a_login(application: Starlette) -> None:
    assert status_of(application, "GET", "/static/style.css", {}) == 401
    assert status_of(application, "GET", "/static/style.css", {"x-roles": "viewer"}) == 200
