"""What the bridge does when one of its sides fails, with a broker and a start in memory."""

from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.bridge.runner import Bridge, TooLarge
from notification_service.connectors.line_format import Line
from resequencer.errors import ConfigurationError


class Broker:
    """Keeps messages until they are acknowledged. `calls` has what was done, in order, by both sides."""

    def __init__(self, *values: bytes) -> None:
        self.kept = list(values)
        self.calls: list[str] = []
        self.problem: Exception | None = None
        self.opened = 0

    def open(self) -> "Source":
        self.opened += 1
        if self.problem is not None:
            raise self.problem
        return Source(self)


class Source:
    notes = ("a note",)

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.taken = 0
        self.is_lost = False
        self.is_closed = False

    def take(self, timeout_ms: int) -> Sequence[Line]:
        self._check()
        found = self.broker.kept[self.taken :]
        self.taken += len(found)
        return [Line(each) for each in found]

    def acknowledge(self) -> None:
        self._check()
        self.broker.calls.append(f"acknowledge {self.taken}")
        del self.broker.kept[: self.taken]
        self.taken = 0

    def close(self) -> None:
        self.is_closed = True

    def _check(self) -> None:
        if self.broker.problem is not None:
            raise self.broker.problem


class Start:
    """`failures` are raised by the next appends; a failing one appends `before_failure` lines. No line may exceed `longest`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.headers: list[dict[str, bytes]] = []
        self.failures: list[Exception] = []
        self.before_failure = 0
        self.longest = 1 << 30
        self.opened = 0

    def open(self) -> "Start":
        self.opened += 1
        return self

    def append(self, lines: Sequence[Line]) -> None:
        if any(len(each.value) + sum(len(name) + len(value) for name, value in each.headers) > self.longest for each in lines):
            raise TooLarge("topic T", "it does not take it. Raise its limit")
        lines = lines[: self.before_failure] if self.failures else lines
        self.broker.calls.append(f"append {len(lines)}")
        self.values += [each.value for each in lines]
        self.keys += [each.key for each in lines]
        self.headers += [dict(each.headers) for each in lines]
        if self.failures:
            raise self.failures.pop(0)

    def close(self) -> None:
        pass


class Stage:
    def __init__(self, *values: bytes) -> None:
        self.broker = Broker(*values)
        self.start = Start(self.broker)
        self.waits: list[int] = []
        self.bridge = Bridge(self.broker.open, self.start.open, self.waits.append)


AWAY = TransportUnavailable("it does not answer")


def test_a_message_is_acknowledged_after_it_was_appended():
    stage = Stage(b"1", b"2")
    stage.bridge.turn()
    assert stage.broker.calls == ["append 2", "acknowledge 2"]
    assert (stage.start.values, stage.broker.kept) == ([b"1", b"2"], [])
    assert stage.bridge.report() == (2, 0, None, ("a note",))


def test_nothing_is_taken_while_the_start_is_away():
    broker = Broker(b"1")
    waits: list[int] = []

    def away() -> Start:
        raise AWAY

    bridge = Bridge(broker.open, away, waits.append)
    for _ in range(8):
        bridge.turn()
    assert (broker.opened, broker.kept) == (0, [b"1"])
    assert waits == [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
    assert bridge.report().problem == "start: it does not answer"


@pytest.mark.parametrize("failure", [AWAY, TransportRefused("topic T", "it does not take a message of 2 bytes")])
def test_a_start_that_fails_leaves_everything_with_the_broker_and_gets_it_again_in_order(failure):
    stage = Stage(b"1", b"2", b"3")
    stage.start.failures, stage.start.before_failure = [failure, failure], 2
    stage.bridge.turn()
    assert (stage.broker.kept, stage.bridge.report().waiting) == ([b"1", b"2", b"3"], 3)
    assert stage.bridge.report().problem == f"start: {failure}"
    stage.broker.kept.append(b"4")
    stage.bridge.turn()
    stage.bridge.turn()
    assert stage.start.values == [b"1", b"2", b"1", b"2", b"1", b"2", b"3", b"4"]
    assert (stage.broker.kept, stage.broker.opened, stage.start.opened) == ([], 1, 3)
    assert stage.bridge.report() == (4, 0, None, ("a note",))


def test_a_source_that_is_lost_before_the_acknowledgement_delivers_again():
    stage = Stage(b"1", b"2")

    def lose(lines: Sequence[Line]) -> None:
        Start.append(stage.start, lines)
        stage.broker.problem = AWAY

    stage.start.append = lose  # type: ignore[method-assign]
    stage.bridge.turn()
    assert (stage.broker.kept, stage.bridge.report().waiting) == ([b"1", b"2"], 0)
    assert stage.bridge.report().problem == "source: it does not answer"
    stage.broker.problem = None
    del stage.start.append  # type: ignore[method-assign]
    stage.bridge.turn()
    assert stage.start.values == [b"1", b"2", b"1", b"2"]
    assert stage.broker.kept == []


def test_what_a_failed_start_left_is_dropped_once_the_source_is_lost_too():
    stage = Stage(b"1", b"2")
    stage.start.failures = [AWAY]
    stage.bridge.turn()
    stage.broker.problem = AWAY
    stage.bridge.turn()
    assert stage.bridge.report().waiting == 0
    stage.broker.problem = None
    stage.bridge.turn()
    assert stage.start.values == [b"1", b"2"]


def test_a_source_that_is_lost_again_and_again_is_left_alone_for_longer_each_time():
    stage = Stage()
    for _ in range(14):
        stage.broker.problem = None
        stage.bridge.turn()
        stage.broker.problem = AWAY
        stage.bridge.turn()
    assert stage.waits[:4] == [400, 800, 1_600, 3_200]
    assert stage.waits[-1] == 300_000
    assert "give each its own" in (stage.bridge.report().problem or "")


def test_a_bridge_whose_session_was_taken_over_ends():
    stage = Stage(b"1")
    stage.broker.problem = ConfigurationError("ipf.bridge.mqtt.client-id", "another bridge runs")
    with pytest.raises(ConfigurationError, match="another bridge runs"):
        stage.bridge.run(lambda: False)


def test_an_unexpected_error_ends_the_bridge_and_leaves_everything_with_the_broker():
    stage = Stage(b"1")
    stage.start.failures = [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        stage.bridge.run(lambda: False)
    assert stage.broker.kept == [b"1"]


def test_it_stops_between_two_turns():
    stage = Stage(b"1")
    stops = iter((False, True))
    stage.bridge.run(lambda: next(stops))
    assert stage.start.values == [b"1"]


def test_of_a_message_that_the_start_never_takes_the_beginning_is_appended_and_what_is_behind_it_comes_whole():
    large = b"x" * 100_000
    stage = Stage(b"1", large, b"3")
    stage.start.longest = 70_000
    stage.bridge.turn()
    stage.bridge.turn()
    assert stage.broker.kept == [b"1", large, b"3"]
    stage.bridge.turn()
    assert stage.start.values == [b"1", large[:65_536], b"3"]
    cut = {"dead-letter-value-length": b"100000", "dead-letter-value-sha256": sha256(large).hexdigest().encode()}
    assert stage.start.headers == [{}, cut, {}]
    assert (stage.broker.kept, stage.bridge.report()) == ([], (3, 0, None, ("a note",)))


def test_if_not_even_a_beginning_is_taken_its_length_is_and_else_the_way_out_is_named():
    stage = Stage(b"x" * 100_000)
    stage.start.longest = 200
    for _ in range(4):
        stage.bridge.turn()
    assert (stage.start.values, stage.start.headers[0]["dead-letter-value-length"]) == ([b""], b"100000")
    stage = Stage(b"x" * 100_000)
    stage.start.longest = 20
    for _ in range(6):
        stage.bridge.turn()
    problem = stage.bridge.report().problem
    assert problem is not None
    assert "Raise its limit: not even a note of its length fits" in problem
    assert "taken away at the broker of the source" in problem
    assert len(stage.broker.kept) == 1
    stage.start.longest = 200
    stage.bridge.turn()
    assert (stage.start.values, stage.broker.kept, stage.bridge.report().problem) == ([b""], [], None)


def test_the_key_is_the_unit_of_work_of_the_envelope(unit_of: Callable[[str], bytes]):
    stage = Stage(
        unit_of("uow-1"), b"\xef\xbb\xbf" + unit_of("uow-2"), b"no envelope", b'{"processingContext":{}}', unit_of("\x07")
    )
    stage.bridge.turn()
    assert stage.start.keys == [b"uow-1", b"uow-2", None, None, None]


@pytest.fixture
def unit_of() -> Callable[[str], bytes]:
    return lambda unit: b'{"flow":"f","processingContext":{"unitOfWorkId":"%b"}}' % unit.encode("unicode_escape")
