"""Which part of a URL is never shown."""

from collections.abc import Callable

import pytest

from resequencer.keys.secret import Secret
from resequencer.printable import without_path, without_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:hidden@host:6379/1", "redis://me:***@host:6379/1"),
        ("postgresql://me@host/db?sslmode=require&password=hidden", "postgresql://me@host/db?sslmode=require&password=***"),
        ("postgresql://host/db?password=hidden&user=me", "postgresql://host/db?password=***&user=me"),
        ("https://host/in?TOKEN=hidden", "https://host/in?TOKEN=***"),
        ("https://host/in?a=1&api_key=hidden#end", "https://host/in?a=1&api_key=***#end"),
        ("https://host/in?sig=hidden&code=hidden", "https://host/in?sig=***&code=***"),
        ("jdbc:sqlserver://host;user=me;password=hidden;database=db", "jdbc:sqlserver://host;user=me;password=***;database=db"),
        ('the ledger "postgresql://host/db?password=hidden" is away', 'the ledger "postgresql://host/db?password=***" is away'),
        ("waits=3 at EVENTS-0@17, because=nothing", "waits=3 at EVENTS-0@17, because=nothing"),
    ],
)
def test_a_login_in_a_url_is_masked_wherever_it_stands(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.mark.parametrize("mask", [without_secrets, without_path])
def test_a_url_with_nothing_secret_in_it_is_shown(mask: Callable[[str], str]) -> None:
    assert repr(mask(Secret("redis://host:6379"))) == "'redis://host:6379'"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example/services/T0/hidden", "https://hooks.example/***"),
        ("https://host:8443/?code=hidden", "https://host:8443/***"),
        ("https://host?hidden", "https://host/***"),
        ("https://me:hid/den@host/hidden", "https://me:***@host/***"),
        ("https://host", "https://host"),
        ("https://host:8443/", "https://host:8443/"),
        ("hooks.example/services/hidden", "hooks.example/***"),
    ],
)
def test_of_a_receivers_url_the_host_alone_is_shown(url: str, shown: str) -> None:
    assert without_path(url) == shown
