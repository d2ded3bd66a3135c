"""Whatever request the description allows or forbids: no error of ours, and answers as described."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from harness.api_stage import API, ApiStage
from hypothesis import HealthCheck, given, settings

from notification_service.console.application import DESCRIPTION

if TYPE_CHECKING:  # It takes more than a second to import, which a run without this test need not wait for.
    import schemathesis

pytestmark = pytest.mark.slow
LOGIN = {"x-roles": "viewer operator payments"}
OPERATIONS = [
    (method, path, mode)
    for path, methods in json.loads(DESCRIPTION.read_bytes())["paths"].items()
    for method, operation in methods.items()
    for mode in ("positive", "negative")
    # Without parameters nothing can violate them, and any text may be in a path.
    if mode == "positive" or any(each["in"] != "path" for each in operation["parameters"])
    if "text/event-stream" not in operation["responses"]["200"]["content"]  # A stream would never end.
]
EXAMPLES = 25


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
def test_any_request_is_answered_as_described(stage: ApiStage, method: str, path: str, mode: str) -> None:
    from schemathesis import GenerationMode, openapi
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    expected = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]
    described = openapi.from_asgi(f"{API}/openapi.json", stage.application(), headers=LOGIN)
    found: list[int] = []

    @given(case=described[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def answers(case: schemathesis.Case) -> None:
        found.append(case.call_and_validate(headers=LOGIN, checks=expected).status_code)

    answers()
    assert found
