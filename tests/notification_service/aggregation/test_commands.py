"""Commands that operators and programs give to a store on files."""

from pathlib import Path

from harness.synced import noting_syncs

from notification_service.aggregation.commands import FileCommands


def test_a_command_is_given_when_no_power_cut_can_take_it_with_the_name_of_its_file(tmp_path: Path) -> None:
    """Also the second one: the first writer may have been killed before it synced the name."""
    directory = tmp_path / "commands"
    for _ in range(2):
        with noting_syncs() as synced:
            FileCommands(directory).update("group", None, b"{}")
        assert synced[-2:] == [str(directory / "partition-1.jsonl"), str(directory)]
