"""What a simulated ledger holds at one instant, read beside the code that is tested."""

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from notification_service.delivery.core.gate import Gate

ENDED = ("processed", "rejected", "failed", "cancelled")


class Row(NamedTuple):
    id: int
    job: str
    key: str
    dedup: str
    notification_id: str
    status: str
    is_head: int
    due_at: int
    owner: str | None
    epoch: int
    attempts: int
    is_late: int
    ended_at: int | None

    @property
    def is_open(self) -> bool:
        return self.status not in ENDED


class JobCounts(NamedTuple):
    id: str
    is_live: int
    read: int
    duplicates: int
    not_selected: int
    ingested: int
    processed: int
    rejected: int
    failed: int
    cancelled: int
    sealed_at: int | None
    cancelled_at: int | None
    completed_at: int | None
    completions: int
    caught_up_at: int
    expected: int | None
    repair: str | None


class Seen(NamedTuple):
    """`held` says which row holds a key, `positions` how far each job has read, `events` the numbers of the events that are
    there, and `published` the last one that is published.
    """

    rows: dict[int, Row]
    jobs: dict[str, JobCounts]
    held: dict[str, int]
    positions: dict[str, int]
    gate: Gate
    events: list[int]
    published: int


class Eye:
    """Reads the ledger in `file`."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)

    def close(self) -> None:
        self._connection.close()

    def look(self) -> Seen:
        rows = (Row(*each) for each in self._ask(f"select {','.join(Row._fields)} from delivery_row order by id"))
        jobs = (JobCounts(*each) for each in self._ask(f"select {','.join(JobCounts._fields)} from delivery_job"))
        gate = self._ask("select state from delivery_gate")
        return Seen(
            {each.id: each for each in rows},
            {each.id: each for each in jobs},
            dict(self._ask("select key, held_by from delivery_key where held_by is not null")),
            dict(self._ask("select job, position from delivery_source")),
            msgspec.json.decode(gate[0][0], type=Gate) if gate else Gate(),
            [each for (each,) in self._ask("select number from delivery_event order by number")],
            self._ask("select max(done) from delivery_service")[0][0] or 0,
        )

    def _ask(self, question: str) -> list[Any]:
        return self._connection.execute(question).fetchall()
