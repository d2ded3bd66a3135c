"""A worker follows the current release, and keeps its own while the next one is invalid."""

import logging
from collections.abc import Callable

import pytest
from harness.waiting import wait_until

from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.follower import Follower
from notification_service.lookups.manifest import ReleaseManifest
from notification_service.lookups.publication import roll_back
from notification_service.lookups.release import Release, open_release

Publish = Callable[..., ReleaseManifest]


@pytest.fixture
def follower(directory: LookupsDirectory, publish: Publish) -> Follower:
    publish({"t": {b"k": b"0"}})
    return Follower(directory, directory.get_current(), every_ms=1)


def test_nothing_is_taken_while_the_release_is_the_same(follower: Follower) -> None:
    follower.look()
    assert follower.take() is None


def test_a_new_release_is_taken_once(follower: Follower, publish: Publish) -> None:
    version = publish({"t": {b"k": b"1"}}).version
    follower.look()
    taken = follower.take()
    assert taken is not None
    assert (taken.version, taken.find("t", b"k")) == (version, b"1")
    follower.look()
    assert follower.take() is None
    taken.close()


def test_of_several_releases_that_were_not_taken_the_last_counts(
    follower: Follower, directory: LookupsDirectory, publish: Publish
) -> None:
    for value in (b"1", b"2"):
        publish({"t": {b"k": value}})
        follower.look()
    taken = follower.take()
    assert taken is not None
    assert taken.find("t", b"k") == b"2"
    taken.close()
    with directory.publishing():
        assert len(directory.sweep(keep=1)) == 2


def test_a_rollback_is_followed_too(follower: Follower, directory: LookupsDirectory, publish: Publish) -> None:
    first = directory.get_current().version
    publish({"t": {b"k": b"1"}})
    follower.look()
    roll_back(directory, first)
    follower.look()
    taken = follower.take()
    assert taken is not None
    assert taken.version == first
    taken.close()


def test_a_rollback_to_what_is_in_use_still_is_followed(
    follower: Follower, directory: LookupsDirectory, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker has not switched to the newer release yet, and still has the older one open."""
    pointer = directory.get_current()
    in_use = open_release(directory, pointer)
    publish({"t": {b"k": b"1"}})
    follower.look()
    roll_back(directory, pointer.version)
    follower.look()
    taken = follower.take()
    assert taken is not None
    in_use.close()
    assert (taken.version, taken.find("t", b"k")) == (pointer.version, b"0")
    taken.close()
    assert caplog.messages == []
    open_release(directory, pointer).close()


def test_a_damaged_release_is_refused_once_and_a_whole_one_taken_after_it(
    follower: Follower, directory: LookupsDirectory, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = publish({"t": {b"k": b"1"}}).version
    file = next(directory.release(damaged).glob("t/*.mdb"))
    file.write_bytes(b"x" * file.stat().st_size)
    with caplog.at_level(logging.WARNING, "resequencer.lookups"):
        for _ in range(3):
            follower.look()
            assert follower.take() is None
    (message,) = caplog.messages
    assert "the published lookups cannot be used" in message
    assert str(file) in message
    publish({"t": {b"k": b"2"}})
    follower.look()
    taken = follower.take()
    assert taken is not None
    taken.close()


def test_a_release_that_was_refused_and_is_mended_is_taken_in_the_end(
    follower: Follower, directory: LookupsDirectory, publish: Publish
) -> None:
    version = publish({"t": {b"k": b"1"}}).version
    file = next(directory.release(version).glob("t/*.mdb"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    for _ in range(10):
        follower.look()
    file.write_bytes(whole)
    for _ in range(20):
        follower.look()
    taken = follower.take()
    assert taken is not None
    taken.close()


def test_a_directory_that_is_away_is_said_once_and_followed_when_it_is_back(
    follower: Follower, directory: LookupsDirectory, publish: Publish, caplog: pytest.LogCaptureFixture
) -> None:
    away = directory.path.with_name("away")
    directory.path.rename(away)
    with caplog.at_level(logging.WARNING, "resequencer.lookups"):
        for _ in range(3):
            follower.look()
    assert len(caplog.messages) == 1
    away.rename(directory.path)
    version = publish({"t": {}}).version
    follower.look()
    taken = follower.take()
    assert taken is not None
    assert taken.version == version
    taken.close()


@pytest.mark.slow
def test_readers_see_whole_releases_during_a_hundred_switches(
    follower: Follower, directory: LookupsDirectory, publish: Publish
) -> None:
    """Both tables of a release have the same number; the follower's own thread looks for releases."""
    follower.start()
    seen = []
    for number in range(1, 101):
        value = b"%d" % number
        publish({"t": {b"k": value}, "u": {b"k": value}})
        taken = follower.take()
        if taken is not None:
            seen.append((taken.find("t", b"k"), taken.find("u", b"k")))
            taken.close()
        with directory.publishing():
            directory.sweep(keep=1)
    while not seen or seen[-1][0] != b"100":
        last = wait_until(follower.take, "the last release")
        seen.append((last.find("t", b"k"), last.find("u", b"k")))
        last.close()
    follower.close()
    assert all(one == other for one, other in seen)
    assert seen[-1] == (b"100", b"100")


def test_whatever_a_look_fails_on_is_said_once_and_the_next_release_is_taken_all_the_same(
    follower: Follower, publish: Publish, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the thread would end silently, and the worker would keep its lookups for ever."""
    version = publish({"t": {b"k": b"1"}}).version
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "resequencer.lookups"):
        patch.setattr("notification_service.lookups.follower.open_release", _fail)
        follower.start()
        wait_until(lambda: caplog.messages, "the failure is logged")
    kept = "the published lookups cannot be used, the present ones stay in use"
    assert caplog.messages == [f"{kept}: ArithmeticError: a bug of ours"]
    taken = wait_until(follower.take, "the release is taken")
    follower.close()
    assert taken is not None
    assert taken.version == version
    taken.close()


def _fail(*_: object) -> Release:
    raise ArithmeticError("a bug of ours")
