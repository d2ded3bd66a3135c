"""The planned times of the lines."""


class Timetable:
    """When the next line is due, in milliseconds after the first one; without a rate always at once. Pure."""

    def __init__(self, rate: float | None) -> None:
        self._line_ms = 1_000 / rate if rate else 0.0
        self._due_ms = 0.0

    @property
    def due_ms(self) -> int:
        return int(self._due_ms)

    def add_line(self) -> None:
        self._due_ms += self._line_ms

    def add_silence(self, milliseconds: int) -> None:
        self._due_ms += milliseconds
