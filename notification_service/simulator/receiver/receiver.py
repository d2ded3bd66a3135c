"""What the receiver answers to a call, apart from HTTP's bytes."""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

from guardian.headers import TRANSACTION_STATUS
from notification_service.simulator.receiver.behaviour import Behaviour, is_in

TAKEN = "taken.jsonl"
"""A line for each notification: `at` (seconds since 1970), `unit`, `key`, `status`, `path`. Null: the call had no such header."""

UNITS = "units.jsonl"
"""A line for each change of a unit: `at`, `unit`, and `is`: `announced`, `forgotten` or `refused`."""

CALLS = "calls.jsonl"
"""A line for each call for a notification that was taken already, or whose answer is lost or late: `at`, `unit`, `key`, and `is`.

`is` is `repeated`: the key had been taken; `unanswered`: it is taken, and the connection breaks, or the answer is late.
"""


class Journal:
    """A file of JSON lines. A line that was added is there after a SIGKILL at any moment."""

    def __init__(self, path: Path) -> None:
        """Open the file, and cut off an unfinished last line: its sender had no answer."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._descriptor, path.read_bytes().rfind(b"\n") + 1)

    def add(self, line: object) -> None:
        """Write a line to the kernel, which keeps it if the process is killed; it is not synced to the disk."""
        os.write(self._descriptor, json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_lines(path: Path) -> Iterator[Any]:
    """Yield the whole lines of a journal, which may be in use; none if there is no file."""
    if path.exists():
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(line)


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body, and headers; `late` are the seconds to wait before; with `breaks` the connection ends without it."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    late: float = 0
    breaks: bool = False


_TAKEN = Answer(200, b'{"result": "taken"}')
_FOUND = Answer(200, b'{"result": "found"}')
_ANNOUNCED = Answer(201, b'{"result": "announced"}')
_KNOWN = Answer(409, b'{"error": "already announced"}')
_MISSING = Answer(404, b'{"error": "not found"}')
_NOT_ANNOUNCED = Answer(404, b'{"error": "not announced"}')
_NOT_ELIGIBLE = Answer(422, b'{"error": "not eligible"}')
_UNAUTHORIZED = Answer(401, b'{"error": "unauthorized"}')
_FAULT = Answer(500, b'{"error": "internal error"}')
_UNKNOWN = Answer(418, b'{"error": "this is a teapot"}')


class Receiver:
    """The receiver of one directory. Its methods may be called by several threads.

    What it took and what it knows of units is read back from the directory. Behaviour and counts begin again.
    """

    def __init__(self, directory: Path, behaviour: Behaviour, clock: Callable[[], float] = time.time) -> None:
        """Begin with what the directory, which is made, has. `clock` returns seconds since 1970."""
        directory.mkdir(parents=True, exist_ok=True)
        self._clock, self._lock = clock, threading.Lock()
        self._taken, self._units = Journal(directory / TAKEN), Journal(directory / UNITS)
        self._calls = Journal(directory / CALLS)
        self._keys = {line["key"] for line in read_lines(directory / TAKEN)} - {None}
        self._announced: dict[str, float] = {}
        self._rejected: set[str] = set()
        for line in read_lines(directory / UNITS):
            self._note(line["unit"], line["is"], line["at"])
        self._began = clock()
        self._behave(behaviour)
        self._running = self._max_running = 0
        self._did: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """Return the answer to a call, which counts as running until `end`. Names of headers are in lower case."""
        with self._lock:
            self._running += 1
            self._max_running = max(self._max_running, self._running)
            now, drawn = self._clock(), self._random.random()
            refusal = self._find_limit(now - self._began) or self._find_fault(drawn)
            if refusal is not None:
                return refusal
            answer, behaviour = self._execute(method, path, headers, now), self._behaviour
            drawn -= behaviour.faults + behaviour.unknown
            if drawn < behaviour.breaks:
                self._did["broken"] += 1
                self._note_unanswered(answer, path, headers, now)
                return Answer(answer.status, breaks=True)
            if drawn - behaviour.breaks < behaviour.lates:
                self._did["late"] += 1
                self._note_unanswered(answer, path, headers, now)
                return Answer(answer.status, answer.body, answer.headers, behaviour.late_seconds)
            return answer

    def end(self) -> None:
        """A call has ended; to be called before its answer is sent, so that the client's next call finds it ended."""
        with self._lock:
            self._running -= 1

    def behaviour(self) -> Mapping[str, object]:
        """Return the behaviour as JSON; windows are in seconds since the start."""
        with self._lock:
            return self._behaviour.as_json()

    def change(self, settings: object) -> None:
        """Change the behaviour, as `Behaviour.changed` does; windows count from now, and the draws by seed begin again.

        Raises:
            BehaviourRefused: A name or a value is wrong; nothing was changed.
        """
        with self._lock:
            self._behave(self._behaviour.changed(settings, self._clock() - self._began))

    def counts(self) -> Mapping[str, object]:
        """Return numbers since the start, and the seconds since then; `refused` has a number for each part of the behaviour."""
        with self._lock:
            names = ("taken", "repeated", "announced", "broken", "late")
            done = {name: self._did[name] for name in names}
            asleep = {"probes-while-asleep": self._refused["asleep"], "most-concurrent": self._max_running}
            return done | {"refused": dict(self._refused)} | asleep | {"seconds": round(self._clock() - self._began, 3)}

    def close(self) -> None:
        self._taken.close()
        self._units.close()
        self._calls.close()

    def _behave(self, behaviour: Behaviour) -> None:
        self._behaviour, self._random = behaviour, Random(behaviour.seed)  # noqa: S311 - chance by seed is what is wanted.
        self._allowance, self._filled = max(behaviour.rate, 1), self._clock()

    def _find_limit(self, now: float) -> Answer | None:
        """Return what every such call gets now, in seconds since the start; None if the call is let in."""
        behaviour = self._behaviour
        if 0 < behaviour.connections < self._running:
            return self._refuse("connections", Answer(429, f"{behaviour.connections} connections allowed".encode()))
        if behaviour.unauthorized:
            return self._refuse("unauthorized", _UNAUTHORIZED)
        if is_in(behaviour.asleep, now):
            headers = (("Retry-After", str(behaviour.retry_after)),) if behaviour.retry_after else ()
            return self._refuse("asleep", Answer(503, b"The receiver is currently suspended", headers))
        if behaviour.rate and not self._take_allowance():
            wait = max(1, ceil((1 - self._allowance) / behaviour.rate))
            return self._refuse("rate", Answer(429, b'{"error": "too many calls"}', (("Retry-After", str(wait)),)))
        return None

    def _find_fault(self, drawn: float) -> Answer | None:
        behaviour = self._behaviour
        if drawn < behaviour.faults:
            return self._refuse("faults", _FAULT)
        if drawn < behaviour.faults + behaviour.unknown:
            return self._refuse("unknown", _UNKNOWN)
        return None

    def _take_allowance(self) -> bool:
        """Count a call against the rate; return False if its allowance is used up."""
        rate, now = self._behaviour.rate, self._clock()
        self._allowance = min(max(rate, 1), self._allowance + (now - self._filled) * rate)
        self._filled = now
        is_within = self._allowance >= 1
        self._allowance -= is_within
        return is_within

    def _execute(self, method: str, path: str, headers: Mapping[str, str], now: float) -> Answer:
        parts = path.partition("?")[0].split("/")
        match method, parts[1:]:
            case "PUT", ["payments", unit]:
                return self._announce(unquote(unit), now)
            case "GET", ["payments", unit]:
                return self._find(unquote(unit), now)
            case "POST", ["payments", unit, "statuses"]:
                return self._take(unquote(unit), path, headers, now)
        return _MISSING

    def _announce(self, unit: str, now: float) -> Answer:
        if self._reject_if_chosen(unit, now):
            return self._refuse("rejects", _NOT_ELIGIBLE)
        if self._recall_announcement(unit, now):
            return _KNOWN
        self._keep(unit, "announced", now)
        self._did["announced"] += 1
        return _ANNOUNCED

    def _find(self, unit: str, now: float) -> Answer:
        is_digested = self._recall_announcement(unit, now) and self._announced[unit] + self._behaviour.digest_seconds <= now
        return _FOUND if is_digested else self._refuse("not-digested", _MISSING)

    def _take(self, unit: str, path: str, headers: Mapping[str, str], now: float) -> Answer:
        if self._reject_if_chosen(unit, now):
            return self._refuse("rejects", _NOT_ELIGIBLE)
        if self._behaviour.announcing and not self._recall_announcement(unit, now):
            return self._refuse("not-announced", _NOT_ANNOUNCED)
        key = headers.get("idempotency-key")
        if key in self._keys:
            self._did["repeated"] += 1
            self._calls.add({"at": round(now, 3), "unit": unit, "key": key, "is": "repeated"})
            return _TAKEN
        status = headers.get(TRANSACTION_STATUS)
        self._taken.add({"at": round(now, 3), "unit": unit, "key": key, "status": status, "path": path})
        if key is not None:
            self._keys.add(key)
        self._did["taken"] += 1
        return _TAKEN

    def _note_unanswered(self, answer: Answer, path: str, headers: Mapping[str, str], now: float) -> None:
        if answer is _TAKEN:
            unit, key = unquote(path.split("/")[2]), headers.get("idempotency-key")
            self._calls.add({"at": round(now, 3), "unit": unit, "key": key, "is": "unanswered"})

    def _recall_announcement(self, unit: str, now: float) -> bool:
        """Return whether the announcement is known; it is forgotten here if a window of `forgets` wants it."""
        announced = self._announced.get(unit)
        if announced is None:
            return False
        since, until = announced - self._began, now - self._began
        if any(since < begin <= until < end for begin, end in self._behaviour.forgets):
            self._keep(unit, "forgotten", now)
        return unit in self._announced

    def _reject_if_chosen(self, unit: str, now: float) -> bool:
        """Keep the unit as refused if it is chosen to be; return whether it is."""
        behaviour = self._behaviour
        chosen = behaviour.rejects > 0 and _share(behaviour.seed, unit) < behaviour.rejects
        if chosen and unit not in self._rejected:
            self._keep(unit, "refused", now)
        return chosen

    def _refuse(self, kind: str, answer: Answer) -> Answer:
        self._refused[kind] += 1
        return answer

    def _keep(self, unit: str, what: str, now: float) -> None:
        self._units.add({"at": round(now, 3), "unit": unit, "is": what})
        self._note(unit, what, now)

    def _note(self, unit: str, what: str, at: float) -> None:
        match what:
            case "announced":
                self._announced[unit] = at
            case "forgotten":
                self._announced.pop(unit, None)
            case "refused":
                self._rejected.add(unit)


def _share(seed: int, unit: str) -> float:
    """Return a number from 0 to 1, without 1, that depends on nothing else."""
    return int.from_bytes(blake2b(f"{seed}:{unit}".encode(), digest_size=8).digest(), "big") / 2**64
