"""What the engine lets out and stores, as a digest for each strategy: `python -m tests.harness.engine_output [--envelopes N]`.

Two checkouts in which it prints the same digests make the same output and the same commits, byte for byte and in the same order.
The envelopes are out of order, doubled, lost and late; some of them fail once, for ever, or on a server that does not answer.
The clock moves by 200 ms with each poll, and chance is fixed. The storage is `embedded`, so that units leave memory and return.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple
from unittest.mock import patch
from zlib import crc32

import msgspec

from benchmarks._worker import MemoryTransport, composed, made, override
from guardian.cycle import Cycle
from guardian.ports import PartitionOutput, Polled
from notification_service.connectors.line_format import Line, decode_line
from notification_service.payments.process_object_handler import ProcessObjectHandler
from resequencer.clock import Instant
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.record import Partition

STRATEGIES = ("SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001", "FULL_PAIN001_AND_CUSTOM_DATA")
DISORDER = ("--losses", "1%", "--late", "1%", "--late-after", 0, "--garbage", "0.2%")
_COMMIT = b"commit "
_STEP_MS = 200
_FIRST_MS = 1_800_000_000_000
_SETTINGS = (
    "stash-timeout = 4s",
    "stash-limit.envelopes-per-unit = 5",
    "custom-data-keys = [BusinessData]",
    "processing-timeout = 1s",
    "idle-timeout = 3s",
)


class _Fixed:
    """A clock that a test moves, and chance that is always in the middle."""

    def __init__(self) -> None:
        self.at: Instant = _FIRST_MS

    def now(self) -> Instant:
        return self.at

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class _Timed(MemoryTransport):
    """Moves the clock with each poll; keeps a digest of the output instead of its lines."""

    def __init__(self, lines: Sequence[bytes], fixed: _Fixed, keep: Callable[[bytes], object]) -> None:
        super().__init__(lines)
        self._fixed = fixed
        self._keep = keep

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        self._fixed.at += _STEP_MS
        return super().poll(max_records, timeout_ms, resting)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        super().publish(outputs)
        for line in self.output:
            self._keep(line)
        self.output.clear()


class _Unsteady:
    """Fails on envelopes by the checksum of their ids."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._handle = ProcessObjectHandler.handle

    def handle(self, handler: ProcessObjectHandler, envelope: Any, *arguments: Any) -> Any:
        name = envelope.envelope_id
        drawn = crc32(name.encode()) % 1_000
        self._calls[name] += 1
        if drawn < 10 and self._calls[name] <= drawn // 2:
            raise TransientError(f"drawn {drawn}")
        if 10 <= drawn < 13 and self._calls[name] <= drawn - 8:
            raise DependencyUnavailable("the register")
        if drawn == 13:
            raise PermanentError("drawn")
        return self._handle(handler, envelope, *arguments)


def engine_output(lines: Sequence[bytes], strategy: str) -> Iterator[bytes]:
    """Yield the lines of the output, and each commit behind its cycle's, encoded."""
    lines = [each for each in lines if isinstance(decode_line(each), Line)]
    fixed, unsteady, kept = _Fixed(), _Unsteady(), list[bytes]()
    settings = [f"payment-status-notification.resequencer.{each}" for each in _SETTINGS]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="resequencer-benchmark-")))
        stack.enter_context(patch("notification_service.wiring.composition.SystemRandom", lambda: fixed))
        stack.enter_context(patch.object(ProcessObjectHandler, "handle", lambda *arguments: unsteady.handle(*arguments)))
        parts = composed(directory, "embedded", override("resequencer.strategy", strategy), *settings)
        servers = parts.servers._replace(transport=_Timed(lines, fixed, kept.append))
        cycle = Cycle(servers, parts.cycle._tools._replace(clock=fixed), parts.cycle._settings)
        cycle.partitions.follow_assignment()
        for owned in cycle.partitions.owned.values():
            _keep_commits(owned.store, kept)
        while cycle.metrics.counts["records"] < len(lines) or fixed.at < _FIRST_MS + _STEP_MS * (len(lines) // 500 + 600):
            cycle.run_once()
            yield from kept
            kept.clear()


def _keep_commits(store: Any, kept: list[bytes]) -> None:
    right = store.commit

    def commit(commit: Any) -> None:
        right(commit)
        kept.append(_COMMIT + msgspec.msgpack.encode(_named(msgspec.structs.replace(commit, attempt=""))) + b"\n")

    store.commit = commit


def _named(value: Any) -> Any:
    """Return a value with its structs as dicts, so that the digest does not depend on how a storage encodes them."""
    if isinstance(value, msgspec.Struct):
        return {name: _named(getattr(value, name)) for name in value.__struct_fields__}
    return [_named(each) for each in value] if isinstance(value, tuple) else value


class Output(NamedTuple):
    """How much was let out and stored, and the digest of it."""

    lines: int
    commits: int
    hexadecimal: str


def digest_of(lines: Sequence[bytes], strategy: str, file: BinaryIO | None = None) -> Output:
    """Run the lines through the engine; write what it lets out and stores to the file, too, if there is one."""
    digest, counts = sha256(), Counter[bool]()
    for each in engine_output(lines, strategy):
        digest.update(each)
        counts[each.startswith(_COMMIT)] += 1
        if file is not None:
            file.write(each)
    return Output(counts[False], counts[True], digest.hexdigest()[:32])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--envelopes", type=int, default=200_000, help="approximate number (default: %(default)s)")
    arguments.add_argument("--to", type=Path, help="a directory into which the output goes too, a file for each strategy")
    chosen = arguments.parse_args()
    with made(chosen.envelopes, *DISORDER) as workload:
        for strategy in STRATEGIES:
            with ExitStack() as stack:
                file = stack.enter_context((chosen.to / strategy).open("wb")) if chosen.to else None
                output = digest_of(workload.read(), strategy, file)
            print(f"{strategy:32}{output.lines:10,} lines{output.commits:8,} commits  {output.hexadecimal}")


if __name__ == "__main__":
    main()
