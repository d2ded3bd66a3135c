"""The description of the API as its operations say it: what `notification_service/console/openapi.json` must be.

`PYTHONPATH=tests .venv/bin/python -m harness.openapi` writes the file.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from harness.console_stage import http_settings, make_sources

from notification_service.console.application import DESCRIPTION, operations_of
from notification_service.console.context import JSON, ROOT, Console, Operation

ABOUT = (
    'What operators see and do, for programs. Errors are `{"error": text}`. A login that a browser adds by itself (all but '
    "bearer) needs a token of `GET /token` in the header `x-form-token` for each request that changes something. "
    "Fields and parameters may be added; what is here does not change its meaning within v1."
)
TOKEN = {
    "name": "x-form-token",
    "in": "header",
    "required": False,
    "description": "A token of `GET /token`; bearer logins need none.",
    "schema": {"type": "string"},
}


class Error(msgspec.Struct, frozen=True):
    """What is wrong, for people."""

    error: str


def describe(operations: Sequence[Operation]) -> str:
    """Return the text of the file."""
    bodies = [each.takes for each in operations if each.changes]
    answers = [each.answers for each in operations if not isinstance(each.answers, str)]
    components = _components([*bodies, *answers, Error], "#/components/schemas/{name}")
    described = {
        "openapi": "3.1.0",
        "info": {"title": "Resequencer", "version": "1", "description": ABOUT},
        "servers": [{"url": ROOT}],
        "paths": {each.path: {"post" if each.changes else "get": _operation(each)} for each in operations},
        "components": {
            "responses": {"Refused": _answer("Refused, or not done.", Error)},
            "schemas": dict(sorted(components.items())),
        },
    }
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def _components(structs: Sequence[type[msgspec.Struct]], reference: str) -> dict[str, dict[str, Any]]:
    """Return the schemas by name. Their docstrings are without indentation, as msgspec gives them only since 0.23."""
    _, components = msgspec.json.schema_components(structs, ref_template=reference)
    return {
        name: each | {"description": inspect.cleandoc(each["description"])} if "description" in each else each
        for name, each in components.items()
    }


def operations() -> list[Operation]:
    with TemporaryDirectory() as name:
        directory = Path(name)
        return operations_of(Console(http_settings(directory), make_sources(directory)))


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "x-role": operation.needs.value,
        "responses": {"200": _answer("The answer.", operation.answers), "default": {"$ref": "#/components/responses/Refused"}},
    }
    if operation.changes:
        described["parameters"] = [*_in_path(operation.path), TOKEN]
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": _reference(operation.takes)}}}
    else:
        described["parameters"] = [*_in_path(operation.path), *_parameters(operation.takes)]
        if operation.takes.__doc__ and operation.takes.__struct_fields__:
            described["description"] = " ".join(operation.takes.__doc__.split())
    return described


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    components = _components([query], "#/{name}")
    whole = components[query.__name__]
    required = whole.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inlined(each, components)}
        for name, each in whole["properties"].items()
    ]


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:  # A parameter that is not given is null.
        return _inlined(next(each for each in schema["anyOf"] if each != {"type": "null"}), components)
    if "$ref" in schema:
        return components[schema["$ref"].removeprefix("#/")]
    return {name: _inlined(each, components) for name, each in schema.items()}


def _answer(text: str, answers: type[msgspec.Struct] | str) -> dict[str, Any]:
    if isinstance(answers, str):
        schema = {"type": "object"} if answers == JSON else {"type": "string", "format": "binary"}
        return {"description": text, "content": {answers: {"schema": schema}}}
    return {"description": text, "content": {JSON: {"schema": _reference(answers)}}}


def _reference(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


if __name__ == "__main__":
    DESCRIPTION.write_text(describe(operations()), encoding="utf-8")
