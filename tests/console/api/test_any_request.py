"""Whatever request the description allows or forbids: no error of ours, and answers as described."""

from __future__ import annotations

import json

import pytest
import schemathesis
from harness.api_stage import API, ApiStage
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from console.api.routes import DESCRIPTION

pytestmark = pytest.mark.slow
LOGIN = {"x-roles": "viewer operator payments"}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPERATIONS = [
    (method, path, mode)
    for path, methods in json.loads(DESCRIPTION.read_bytes())["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    if operation["parameters"] or mode is GenerationMode.POSITIVE  # Without parameters nothing can violate them.
]
EXAMPLES = 100


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
def test_any_request_is_answered_as_described(stage: ApiStage, method: str, path: str, mode: GenerationMode) -> None:
    described = schemathesis.openapi.from_asgi(f"{API}/openapi.json", stage.application(), headers=LOGIN)
    found: list[int] = []

    @given(case=described[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def answers(case: schemathesis.Case) -> None:
        found.append(case.call_and_validate(headers=LOGIN, checks=CHECKS).status_code)

    answers()
    assert found
