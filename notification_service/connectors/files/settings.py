"""The settings of the file transport: its directories, limits and rotation."""

from pathlib import Path

import msgspec


class FileSettings(msgspec.Struct, frozen=True):
    """Missing directories are created.

    `topic` is the topic name of the partitions, because files have none. A value of more than `max_value_bytes` is cut.
    `poll_interval_ms` is the pause of a poll that found nothing before it looks again. An output that reaches `rotate_bytes`
    is rotated; with None never. The last `notifications_kept` rotated notification files are kept, with None all. Rotated
    dead letters are all kept, for an operator decides on them. With `has_orders` there is an output for their outcomes.
    The file of the notifications is `notifications_name` with `.jsonl`.
    Facts are written to `partition-0.jsonl` of `facts_directory`, in the form of an input; with None there are no facts.
    `written_by` is the `positions.json` of the service whose facts are the input, in `partition-0.jsonl`; None for any other.
    """

    topic: str
    in_directory: Path
    out_directory: Path
    max_value_bytes: int = 5 * 1024 * 1024
    poll_interval_ms: int = 20
    rotate_bytes: int | None = None
    notifications_kept: int | None = None
    has_orders: bool = False
    facts_directory: Path | None = None
    notifications_name: str = "notifications"
    written_by: Path | None = None

    def __post_init__(self) -> None:
        assert self.topic
        assert self.max_value_bytes > 0
        assert self.poll_interval_ms > 0
        assert self.rotate_bytes is None or self.rotate_bytes > 0
        assert self.notifications_kept is None or self.notifications_kept > 0

    @property
    def max_line_bytes(self) -> int:
        """The longest line held whole: any value within its limit as `encode_line` writes it, with key and headers."""
        return 3 * self.max_value_bytes + 1024 * 1024
