"""Two spellings of one login are one person; two logins are two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resequencer.order import is_same_person


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("anna", "anna"),
        ("anna", "Anna"),
        ("anna", "ANNA "),
        ("straße", "STRASSE"),
        ("zoe\u0308", "zo\u00eb"),
        ("\uff41nna", "anna"),
        ("an\u200bna", "anna"),
        ("an\u00adna", "anna"),
        ("\ufb01ona", "Fiona"),
        ("\u1e9e", "SS"),
    ],
)
def test_a_name_that_is_spelt_otherwise_is_the_same_person(one: str, other: str) -> None:
    assert is_same_person(one, other)
    assert is_same_person(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [("anna", "ben"), ("anna", "anna2"), ("anna", "hanna"), ("zoe", "zo\u00eb"), ("", "a")]
)
def test_another_name_is_another_person(one: str, other: str) -> None:
    assert not is_same_person(one, other)


@given(st.text(max_size=40))
def test_a_name_without_its_capitals_is_the_same_person(name: str) -> None:
    assert is_same_person(name, name.casefold())
    assert is_same_person(name, name)
