"""A group on a stage, and the schema of its reports."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from defusedxml import ElementTree
from harness.group_stage import GroupStage, report_in

from notification_service.aggregation.core import Completion
from notification_service.payments.iso20022.pain002_schema import render_report_xml

SAMPLES = Path(__file__).parents[5] / "shared" / "samples"
"""Files of other projects, beside the repository and no part of it; tests that read them are skipped where they are not."""


@pytest.fixture
def stage() -> GroupStage:
    """A group of two payments."""
    return GroupStage()


@pytest.fixture(scope="session")
def schema() -> Any:
    if not SAMPLES.is_dir():
        pytest.skip(f"the shared samples are not at {SAMPLES}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Warnings of xmlschema's own import do not matter here.
        import xmlschema

    return xmlschema.XMLSchema10(SAMPLES / "xsd" / "pain.002.001.10.xsd")


@pytest.fixture(scope="session")
def assert_valid(schema: Any) -> Callable[[Completion], None]:
    """Fail unless a report, JSON or XML, is valid against the XSD."""

    def assert_valid(completion: Completion) -> None:
        is_xml = completion.value.startswith(b"<")
        text = completion.value if is_xml else render_report_xml({"CstmrPmtStsRpt": report_in(completion)}).encode()
        errors = [f"{error.path}: {error.reason}" for error in schema.iter_errors(ElementTree.fromstring(text))]
        assert not errors, errors

    return assert_valid
