"""The address of a Redis server, read from its URL."""

from pathlib import Path

import pytest

from storage.redis.settings import RedisLogin, read_place


def test_a_host_alone_has_the_usual_port_and_the_first_database():
    place = read_place("redis://localhost", RedisLogin())
    assert place.addresses == (("localhost", 6379),)
    assert (place.is_tls, place.is_socket) == (False, False)
    assert place.options == {"db": 0, "username": None, "password": None}


def test_everything_that_a_url_can_tell_is_read():
    place = read_place("redis://me:p%40ss%2C@a:1,[::1]:2,c/7", RedisLogin())
    assert place.addresses == (("a", 1), ("::1", 2), ("c", 6379))
    assert place.options == {"db": 7, "username": "me", "password": "p@ss,"}


def test_a_password_without_a_user_is_the_default_users():
    assert read_place("redis://:secret@a", RedisLogin()).options == {"db": 0, "username": None, "password": "secret"}


def test_a_login_of_its_own_wins_over_that_of_the_url():
    options = read_place("redis://me:mine@a", RedisLogin("you", "yours")).options
    assert (options["username"], options["password"]) == ("you", "yours")


def test_a_socket_has_a_path_and_may_name_a_database():
    place = read_place("unix:///run/a%20b.sock?db=2", RedisLogin())
    assert (place.addresses, place.is_socket, place.options["db"]) == ((("/run/a b.sock", 0),), True, 2)


def test_certificates_go_with_tls():
    files = RedisLogin(ca_file=Path("ca.pem"), certificate_file=Path("own.pem"), key_file=Path("own.key"))
    place = read_place("rediss://a", files)
    assert place.is_tls
    assert place.options["ssl_ca_certs"] == "ca.pem"
    assert (place.options["ssl_certfile"], place.options["ssl_keyfile"]) == ("own.pem", "own.key")


@pytest.mark.parametrize(
    ("url", "login", "text"),
    [
        ("redis://a:b", RedisLogin(), "has an invalid port in 'a:b'"),
        ("redis://a:70000", RedisLogin(), "has an invalid port in 'a:70000'"),
        ("redis:///0", RedisLogin(), "has no host"),
        ("redis://a,,b", RedisLogin(), "has no host"),
        ("redis://a/x", RedisLogin(), "names the database 'x'"),
        ("redis://a?timeout=3", RedisLogin(), "have keys of their own"),
        ("unix:///s?x=1", RedisLogin(), "have keys of their own"),
        ("redis://a", RedisLogin(ca_file=Path("ca.pem")), "use rediss://"),
        ("rediss://a", RedisLogin(key_file=Path("own.key")), "needs both"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_telling_the_password(url, login, text):
    with pytest.raises(ValueError, match=text) as refused:
        read_place(url.replace("://", "://me:s3cret@") if "//a" in url else url, login)
    assert "s3cret" not in str(refused.value)


def test_neither_place_nor_login_show_a_password():
    login = RedisLogin("me", "s3cret")
    assert "s3cret" not in f"{login!r} {read_place('redis://a', login)!r}"
