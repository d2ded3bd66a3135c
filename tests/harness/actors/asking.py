"""A guardian that a test calls by hand, with a dict in place of the storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from harness.driving import NoChance, Recorder, decoder, wire

from guardian.actor_gateway import ActorGateway, Decided, UnitsReport
from guardian.unit_registry import UnitRegistrySettings
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.batch import UnitKey
from resequencer.handler import Profiles
from resequencer.record import Origin, Partition, Record
from resequencer.settings import LEARNED, ResequencerSettings
from resequencer.storage_port import Snapshot, StashEntry, Waits
from resequencer.strategies.port import Strategy
from resequencer.turn.turn import Turn, TurnContext

P0, P1 = Partition("T", 0), Partition("T", 1)
FAR = {P0: 10**12, P1: 10**12}


class Asked:
    """A guardian whose polls a test makes: `poll` is prepare, load, decide, and storing the changes."""

    def __init__(
        self,
        strategy: str | Strategy = "SEQUENCE",
        profiles: Profiles | None = None,
        is_learned: bool = False,
        **registry: Any,
    ) -> None:
        chosen = make_strategy(StrategySettings(strategy)) if isinstance(strategy, str) else strategy
        self.handler = Recorder()
        unit = ResequencerSettings(stash_timeout_ms=LEARNED if is_learned else None)
        context = TurnContext(chosen, self.handler, LATEST_OBJECTS, unit, NoChance(), profiles)
        self.actors = ActorGateway(context, decoder().decode, msgspec.structs.replace(UnitRegistrySettings(), **registry))
        self.now = 1_000_000
        self.stored: dict[UnitKey, Snapshot] = {}
        self.waiting: dict[UnitKey, Waits] = {}
        self.loaded: list[frozenset[UnitKey]] = []
        self.offset = 0

    def envelope(
        self, unit: str, sequence: int, partition: Partition = P0, identity: str | None = None, mds: Iterable[str] = ()
    ) -> DataEnvelope:
        self.offset += 1
        objects = [{"uniqueId": name, "objectType": name, "object": {}} for name in mds]
        value = wire(unit, "A", sequence, identity or f"{unit}#{sequence}", mdsObjects=objects)
        decoded = decoder().decode(Record(Origin(partition, self.offset), value, unit.encode()))
        assert isinstance(decoded, DataEnvelope), decoded
        return decoded

    def poll(
        self,
        *envelopes: DataEnvelope,
        after_ms: int = 0,
        read_to: Mapping[Partition, int] = FAR,
        ends: Mapping[Partition, int] = FAR,
    ) -> Decided:
        self.now += after_ms
        arrivals: dict[UnitKey, tuple[DataEnvelope, ...]] = {}
        for each in envelopes:
            key = UnitKey(each.record.origin.partition, each.unit)
            arrivals[key] = (*arrivals.get(key, ()), each)
        unknown = self.actors.prepare(self.now, tuple(arrivals), read_to, ends).unknown
        self.loaded.append(frozenset(unknown))
        snapshots = {key: self.stored[key] for key in unknown if key in self.stored}
        decided = self.actors.decide(self.now, arrivals, snapshots)
        for turn in decided.turns:
            self._keep(turn)
        return decided

    def arm(self, keys: Iterable[UnitKey]) -> None:
        for key in keys:
            self.actors.arm(key.partition, [(key.unit, self.waiting[key])])

    def drop(self, partition: Partition) -> None:
        self.actors.drop(partition)

    def report_units(self) -> UnitsReport:
        return self.actors.report_units()

    def notified(self, decided: Decided) -> list[str]:
        return [each.notification_id for turn in decided.turns for each in turn.output if hasattr(each, "status")]

    def _keep(self, turn: Turn) -> None:
        change = turn.change
        if turn.waits is None:
            self.waiting.pop(turn.key, None)
        else:
            self.waiting[turn.key] = turn.waits
        if change is None:
            return
        before = self.stored.get(turn.key)
        stash: dict[int, StashEntry] = {each.offset: each for each in before.stash} if before else {}
        for offset in change.stash_removed:
            stash.pop(offset, None)
        stash |= {each.offset: each for each in change.stash_added}
        data = change.data or (before.data if before else None)
        entries = tuple(stash[offset] for offset in sorted(stash))
        self.stored[turn.key] = Snapshot(change.unit, change.state, data, entries)
