"""Target `stored-unit`: anything that the storage returns is a unit that continues, or is refused by name."""

from collections.abc import Iterator

from harness.driving import PARTITION, Driven, Envelopes, NoChance, Recorder, decoder, drive

from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.batch import WITHOUT_END
from resequencer.errors import ConfigurationError, TransientError
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import Snapshot, StashEntry, StorageRefused
from resequencer.turn.decide import take_turn
from resequencer.turn.turn import TurnContext
from resequencer.unit import Unit, Wake
from resequencer.unit_codec import UnitCodec, encode_entry, encode_state

SEPARATOR = b"\xc1\xc1"
"""The only byte that MessagePack never uses."""

STRATEGIES = ("SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001")
TOKENS = (
    *(SEPARATOR, b"\x90", b"\xdc\xff\xff", b"\xdd\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xcf" + b"\xff" * 8),
    b"\xa8SEQUENCE",
)
NOW = 1_100_000

_strategies = [make_strategy(StrategySettings(name)) for name in STRATEGIES]


def check(data: bytes) -> None:
    """Check the bytes: the first one chooses the strategy; the rest is state, payment data and stash entries, separated.

    * It is restored, or refused with a `StorageRefused` (damaged) or a `ConfigurationError` (another strategy's) that names
      the unit.
    * What was restored and is stored again is restored as the same.
    * It takes turns: an envelope, what it had left over, its retry, its deadline, its bound.
    """
    state, unit_data, *bodies = [*data[1:].split(SEPARATOR), b""][:12]
    entries = tuple(StashEntry(10 + at, body) for at, body in enumerate(bodies) if body)
    codec = UnitCodec(
        _strategies[(data[0] if data else 0) % len(STRATEGIES)], decoder(needs_sequence=True).decode, LATEST_OBJECTS
    )
    try:
        unit = codec.restore(PARTITION, Snapshot("uow-1", state, unit_data or None, entries))
    except (StorageRefused, ConfigurationError) as error:
        _check_refusal(error)
        return
    again, expected = codec.restore(PARTITION, _stored(unit, codec)), unit.copy()
    expected.amend(undecodable=())
    assert again.saved() == expected.saved()
    _take_turns(unit, codec)


def _check_refusal(error: Exception) -> None:
    assert "uow-1" in str(error), error
    assert len(str(error)) < 500, error


def _stored(unit: Unit, codec: UnitCodec) -> Snapshot:
    waiting = [*unit.stash, *unit.queue, *([unit.retry.entry] if unit.retry else [])]
    entries = sorted((encode_entry(each) for each in waiting), key=lambda entry: entry.offset)
    return Snapshot(unit.name, encode_state(unit, codec.strategy), LATEST_OBJECTS.encode(unit.data), tuple(entries))


def _take_turns(unit: Unit, codec: UnitCodec) -> None:
    context = TurnContext(codec.strategy, Recorder(), LATEST_OBJECTS, ResequencerSettings(), NoChance())
    envelopes = Envelopes()
    envelopes.offset = 100
    for wake, share in ((Wake.REMAINDER, 1), (Wake.RETRY, 1), (Wake.DEADLINE, WITHOUT_END), (Wake.BOUND, WITHOUT_END)):
        take_turn(unit, (envelopes(3),), (wake,), NOW + 10**9, context, share)


def seeds() -> list[bytes]:
    """Yield units after each step of a short run, for each strategy: one has its head under retry, and some were cut off."""
    return [bytes([number]) + seed for number, name in enumerate(STRATEGIES) for seed in _run_of(name)]


def _run_of(name: str) -> Iterator[bytes]:
    driven, envelopes = drive(name, stash_limit=8), Envelopes()
    parts = ["PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION"]
    steps = [envelopes(4), envelopes(2, mds=parts[:1]), envelopes(2, flow="B"), envelopes(1, mds=parts, custom=["k"], pds=["p"])]
    driven.handler.fail(steps[3], TransientError("not now"))
    for each in steps:
        driven.arrive(each)
        yield _written(driven)
    driven.share = 1
    driven.wake(Wake.RETRY, 10_000)
    yield _written(driven)
    driven.arrive(envelopes(7))
    yield _written(driven)
    driven.share = WITHOUT_END
    driven.wake(Wake.REMAINDER)
    yield _written(driven)


def _written(driven: Driven) -> bytes:
    assert driven.stored is not None
    stash = [entry.body for entry in driven.stored.stash]
    return SEPARATOR.join((driven.stored.state, driven.stored.data or b"", *stash))
