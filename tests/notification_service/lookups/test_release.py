"""Releases are published completely or not at all, and a damaged release is refused."""

import os
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest

from notification_service.lookups import publication
from notification_service.lookups.directory import MANIFEST, LookupsDirectory
from notification_service.lookups.manifest import FORMAT, ReleaseManifest, decode_manifest, encode_manifest
from notification_service.lookups.publication import Publication, roll_back
from notification_service.lookups.release import Release, open_release
from notification_service.lookups.shapes import NoRelease, PublishingRefused, ReleaseRefused

ROWS = {b"k%05d" % number: b"v%d" % number for number in range(2_000)}
Publish = Callable[..., ReleaseManifest]


def opened(directory: LookupsDirectory) -> Release:
    return open_release(directory, directory.get_current())


@pytest.mark.parametrize("shards", [1, 7])
def test_every_key_is_found_and_no_other(directory: LookupsDirectory, publish: Publish, shards: int) -> None:
    publish({"t": ROWS}, shards)
    release = opened(directory)
    assert all(release.find("t", key) == value for key, value in ROWS.items())
    assert [release.find("t", key) for key in (b"", b"k", b"k99999", b"x" * 512)] == [None] * 4
    assert release.find("other", b"k00000") is None
    release.close()


def test_an_empty_table_has_no_keys(directory: LookupsDirectory, publish: Publish) -> None:
    publish({"t": {}})
    release = opened(directory)
    assert release.find("t", b"k") is None
    release.close()


def test_where_nothing_was_published_the_remedy_is_said(directory: LookupsDirectory) -> None:
    with pytest.raises(NoRelease, match="make lookups"):
        directory.get_current()


def test_the_newest_publication_is_the_current_one(directory: LookupsDirectory, publish: Publish) -> None:
    versions = [publish({"t": {b"k": b"%d" % number}}).version for number in range(3)]
    assert directory.versions() == versions
    release = opened(directory)
    assert (release.version, release.find("t", b"k")) == (versions[-1], b"2")
    release.close()


def test_two_releases_of_the_same_millisecond_have_two_versions(directory: LookupsDirectory, publish: Publish) -> None:
    first = publish({"t": {}}).version
    at = 1_790_000_001_000
    assert first == publication.version_of(at)
    assert Publication(directory, at, "test").version == publication.version_of(at + 1)


def test_a_release_is_newer_than_those_of_a_clock_that_was_ahead_and_the_oldest_goes(directory: LookupsDirectory) -> None:
    year, now = 365 * 86_400_000, 1_790_000_001_000
    versions = []
    with directory.publishing():
        for at in (now + year, now + year + 1_000, now, now + 1_000):
            made = Publication(directory, at, "test")
            made.path.mkdir(parents=True)
            versions.append(made.publish({}, ()).version)
            directory.sweep(2)
            assert directory.versions() == versions[-2:]
            assert directory.get_current().version == versions[-1]


@pytest.mark.parametrize("shards", [1, 3])
def test_any_damaged_byte_of_any_file_is_refused(directory: LookupsDirectory, publish: Publish, shards: int) -> None:
    version = publish({"t": ROWS, "u": {b"k": b"v"}}, shards).version
    files = [each for each in directory.release(version).rglob("*") if each.is_file()]
    assert len(files) == 1 + 2 * shards
    for file in files:
        whole = file.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ReleaseRefused, match="build the lookups again"):
                opened(directory)
        file.write_bytes(whole)
    opened(directory).close()


def test_a_manifest_other_than_the_one_that_was_published_is_refused(directory: LookupsDirectory, publish: Publish) -> None:
    manifest = publish({"t": ROWS})
    other = encode_manifest(msgspec.structs.replace(manifest, job_version="another"))
    (directory.release(manifest.version) / MANIFEST).write_bytes(other)
    with pytest.raises(ReleaseRefused, match="is not the manifest that was published"):
        opened(directory)


def test_a_half_copied_release_is_refused(directory: LookupsDirectory, publish: Publish) -> None:
    version = publish({"t": ROWS}, 2).version
    file = next(directory.release(version).glob("t/*.mdb"))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ReleaseRefused, match=f"instead of {len(whole)}"):
        opened(directory)
    file.unlink()
    with pytest.raises(ReleaseRefused, match="No such file"):
        opened(directory)


def test_a_newer_format_is_refused_with_the_remedy(directory: LookupsDirectory, publish: Publish) -> None:
    manifest = publish({"t": ROWS})
    newer = encode_manifest(msgspec.structs.replace(manifest, format=FORMAT + 1))
    with pytest.raises(ReleaseRefused, match="update the service"):
        decode_manifest(newer, directory.path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": "../../x", "manifest_sha256": ""}'])
def test_a_pointer_that_names_no_release_is_refused(directory: LookupsDirectory, publish: Publish, content: bytes) -> None:
    publish({"t": {}})
    (directory.path / "current").write_bytes(content)
    with pytest.raises(ReleaseRefused, match="build the lookups again"):
        directory.get_current()


def test_only_one_at_a_time_publishes(directory: LookupsDirectory) -> None:
    with directory.publishing(), pytest.raises(PublishingRefused, match="wait for that to end"), directory.publishing():
        pass
    with directory.publishing():
        pass


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("step", ["open", "fsync", "rename", "mkdir"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_publication_that_dies_at_any_step_leaves_a_whole_release(
    directory: LookupsDirectory, publish: Publish, monkeypatch: pytest.MonkeyPatch, step: str, count: int
) -> None:
    """It dies before each of its system calls; afterwards either the old or the new release is current."""
    before = publish({"t": {b"k": b"old"}}).version
    left = [count]
    whole = {"open": os.open, "fsync": os.fsync, "rename": os.rename, "mkdir": os.mkdir}[step]

    def dying(*arguments: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise _Killed
        return whole(*arguments, **options)  # type: ignore[operator]

    with monkeypatch.context() as patch, suppress(_Killed):
        patch.setattr(os, step, dying)
        publish({"t": {b"k": b"new"}})
    release = opened(directory)
    assert release.find("t", b"k") == (b"old" if release.version == before else b"new")
    release.close()
    with directory.publishing():
        directory.sweep(keep=10)
    assert list(directory.building.glob("*")) == []
    publish({"t": {b"k": b"newer"}})
    release = opened(directory)
    assert release.find("t", b"k") == b"newer"
    release.close()


def test_rolling_back_uses_an_older_release_and_a_newer_one_again(directory: LookupsDirectory, publish: Publish) -> None:
    first, second = (publish({"t": {b"k": value}}).version for value in (b"1", b"2"))
    for version in (first, second):
        roll_back(directory, version)
        assert directory.get_current().version == version
        opened(directory).close()


def test_no_one_rolls_back_to_what_is_not_there_or_damaged(directory: LookupsDirectory, publish: Publish) -> None:
    first, second = (publish({"t": {b"k": value}}).version for value in (b"1", b"2"))
    with pytest.raises(ReleaseRefused, match=f"no such release; the releases are: {second}, {first}"):
        roll_back(directory, "20200101T000000000Z")
    next(directory.release(first).glob("t/*.mdb")).write_bytes(b"")
    with pytest.raises(ReleaseRefused, match="instead of"):
        roll_back(directory, first)
    assert directory.get_current().version == second


def test_old_releases_are_removed_once_no_reader_has_them_open(directory: LookupsDirectory, publish: Publish) -> None:
    reader: list[Release] = []
    for number in range(5):
        publish({"t": {b"k": b"%d" % number}})
        if number == 1:
            reader.append(opened(directory))
    first, held, third, *kept = directory.versions()
    with directory.publishing():
        assert directory.sweep(keep=2) == [first, third]
        assert directory.versions() == [held, *kept]
        assert reader[0].find("t", b"k") == b"1"
        reader[0].close()
        assert directory.sweep(keep=2) == [held]
    assert sorted(each.name for each in directory.releases.iterdir()) == directory.versions() == kept


def test_the_current_release_stays_however_old_it_is(directory: LookupsDirectory, publish: Publish) -> None:
    versions = [publish({"t": {}}).version for _ in range(3)]
    with directory.publishing():
        roll_back(directory, versions[0])
        assert directory.sweep(keep=1) == [versions[1]]
    assert directory.versions() == [versions[0], versions[2]]


def test_what_was_set_aside_goes_with_the_releases_of_its_time(directory: LookupsDirectory, publish: Publish) -> None:
    versions = [publish({"t": {}}).version for _ in range(3)]
    for version in versions:
        (directory.quarantine / version / "customers").mkdir(parents=True)
    with directory.publishing():
        directory.sweep(keep=2)
    assert sorted(each.name for each in directory.quarantine.iterdir()) == versions[1:]


def test_what_is_being_removed_is_refused(directory: LookupsDirectory, publish: Publish) -> None:
    publish({"t": {}})
    pointer = directory.get_current()
    (directory.release(pointer.version) / MANIFEST).unlink()
    with pytest.raises(ReleaseRefused, match="cannot be read"):
        open_release(directory, pointer)
