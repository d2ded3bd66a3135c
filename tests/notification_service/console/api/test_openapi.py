"""The API's description is that of its operations."""

from __future__ import annotations

import json

from harness.api_stage import API, ApiStage
from harness.openapi import describe, operations
from starlette.routing import Route

from notification_service.console.application import DESCRIPTION

WRITE = "PYTHONPATH=tests .venv/bin/python -m harness.openapi"


def test_the_file_describes_each_operation_with_the_schemas_of_its_structures() -> None:
    assert DESCRIPTION.read_text(encoding="utf-8") == describe(operations()), f"write it with `{WRITE}`, and look at what changed"


def test_each_route_of_the_application_is_in_the_file_and_each_in_the_file_is_a_route(stage: ApiStage) -> None:
    described = {
        (method.upper(), f"{API}{path}")
        for path, methods in json.loads(DESCRIPTION.read_bytes())["paths"].items()
        for method in methods
    }
    routes = {
        (method, each.path)
        for each in stage.application().routes
        if isinstance(each, Route) and each.path.startswith("/api/")
        for method in each.methods - {"HEAD"}
    }
    assert routes == described


def test_the_file_is_served(stage: ApiStage) -> None:
    assert stage.get("/openapi.json")["openapi"] == "3.1.0"
