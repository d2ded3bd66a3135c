"""Where the file transport reads and writes, and how much it takes at once."""

from pathlib import Path

import msgspec


class FileSettings(msgspec.Struct, frozen=True):
    """Directories are created when they are missing.

    `topic` names the partitions' topic, which files have none of. A value of more than `max_value_bytes` is cut.
    `poll_interval_ms` is how long a poll that found nothing waits before it looks again. An output of `rotate_bytes` is full
    and makes room for a new one, with None never. Of full notification files the last `notifications_kept` stay, with None
    all; of dead letters all stay, for they wait for a person.
    """

    topic: str
    in_directory: Path
    out_directory: Path
    max_value_bytes: int = 5 * 1024 * 1024
    poll_interval_ms: int = 20
    rotate_bytes: int | None = None
    notifications_kept: int | None = None

    def __post_init__(self) -> None:
        assert self.topic
        assert self.max_value_bytes > 0
        assert self.poll_interval_ms > 0
        assert self.rotate_bytes is None or self.rotate_bytes > 0
        assert self.notifications_kept is None or self.notifications_kept > 0

    @property
    def max_line_bytes(self) -> int:
        """The longest line that is held whole: any value within its limit as `encode_line` writes it, with key and headers."""
        return 3 * self.max_value_bytes + 1024 * 1024
