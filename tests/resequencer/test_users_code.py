"""What users name as `package.module:name` is imported, and a place that was given up is answered with the new one."""

import re
from pathlib import Path

import pytest

from notification_service import api
from resequencer.users_code import import_named


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name, text: (tmp_path / f"{name}.py").write_text(text)


def test_a_name_may_have_dots(write):
    write("users_first", "class A:\n    class B:\n        here = 7\n")
    assert import_named("users_first:A.B.here") == 7


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("from domain.envelope import DataEnvelope", "notification_service.api"),
        ("from resequencer.handlers.port import Marks", "notification_service.api"),
        ("import storage.port", "notification_service.api"),
        ("from pipeline.lookups.spec import LookupSpec", "notification_service.jobs.lookups.spec"),
    ],
)
def test_an_import_from_a_place_of_before_is_refused_with_the_new_place(write, line, place):
    write("users_old", f"{line}\n")
    with pytest.raises(ImportError, match=rf"there is no \S+ any more: import from {re.escape(place)} instead"):
        import_named("users_old:x")


def test_what_else_is_missing_is_named_as_it_is(write):
    write("users_lacking", "import domain_of_theirs\n")
    with pytest.raises(ModuleNotFoundError, match="No module named 'domain_of_theirs'"):
        import_named("users_lacking:x")


def test_the_place_for_users_has_what_it_names():
    assert [each for each in api.__all__ if not hasattr(api, each)] == []
