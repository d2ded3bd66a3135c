"""Commands that operators and programs give to a store on files."""

import errno
import os
from pathlib import Path

import pytest
from harness.synced import noting_syncs

from guardian.ports import TransportUnavailable
from notification_service.aggregation.commands import FileCommands


def test_a_command_is_given_when_no_power_cut_can_take_it_with_the_name_of_its_file(tmp_path: Path) -> None:
    """Also by a second process: the first writer may have been killed before it synced the name."""
    file = tmp_path / "commands" / "partition-1.jsonl"
    for _ in range(2):
        commands = FileCommands(file.parent)
        with noting_syncs() as synced:
            commands.update("group", None, b"{}")
        assert synced[-2:] == [str(file.parent), str(file)]
        with noting_syncs() as synced:
            commands.update("group", None, b"{}")
        assert synced == [str(file)], "its name is durable by now"
    file.unlink()
    with noting_syncs() as synced:
        commands.update("group", None, b"{}")
    assert synced == [str(file.parent), str(file)], "that of a new file is not"


def test_a_command_is_not_given_yet_when_the_name_of_its_file_cannot_be_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gets the error gives the command again."""

    def fail(directory: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(directory))

    commands = FileCommands(tmp_path)
    monkeypatch.setattr("notification_service.aggregation.commands.sync_directory", fail)
    with pytest.raises(TransportUnavailable, match="EIO"):
        commands.update("group", None, b"{}")
    monkeypatch.undo()
    commands.update("group", None, b"{}")
    assert len((tmp_path / "partition-1.jsonl").read_bytes().splitlines()) == 1


def test_commands_go_to_a_directory_that_may_be_written_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))

    monkeypatch.setattr("notification_service.aggregation.commands.sync_directory", refuse)
    FileCommands(tmp_path).update("group", None, b"{}")
    assert (tmp_path / "partition-1.jsonl").stat().st_size
