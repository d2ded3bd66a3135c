"""A model of a receiver: it sleeps, refuses, limits, forgets, breaks connections, and knows what it took."""

from collections import Counter
from enum import StrEnum
from random import Random

from harness.simulated_delivery.plan import Plan

from notification_service.delivery.core.answers import Answer, NoAnswer, Trouble
from notification_service.delivery.core.jobs import Claim
from notification_service.delivery.settings import Step

_MIN_MS, _MAX_MS = 3_000, 60_000


class Mood(StrEnum):
    """How it answers for a while."""

    AWAKE = "awake"
    ASLEEP = "asleep"
    """503 with the text of a suspension, or with Retry-After."""
    LOCKED = "locked"
    """401."""
    GONE = "gone"
    """No connection."""
    ERRING = "erring"
    """500, and 503 without a reason."""
    BUSY = "busy"
    """Often too many calls."""
    FRAGILE = "fragile"
    """Connections break, often after the call was taken."""


class ModelReceiver:
    """`taken` are the ids of the notifications that it took, `answered` what it answered, by row and kind of answer.
    `forgotten` counts how often it forgot each unit.

    From `heal` on it is awake for ever, knows what it did not understand, bars no unit, and forgets nothing more.
    """

    def __init__(self, plan: Plan, random: Random) -> None:
        self._plan, self._random = plan, random
        self._poison, self._barred = plan.poison, plan.barred
        self._known_at: dict[str, int] = {}
        self._until = 0
        self._is_healed = False
        self.mood = Mood.AWAKE
        self.taken: set[str] = set()
        self.answered: dict[int, Counter[str]] = {}
        self.forgotten: Counter[str] = Counter()

    def change(self, now: int) -> str:
        """Fall into another mood for a while, or forget announcements; return what happened."""
        if self._random.random() < 0.5 and self._known_at:
            forgotten = self._random.sample(sorted(self._known_at), self._random.randint(1, len(self._known_at)))
            for unit in forgotten:
                del self._known_at[unit]
            self.forgotten.update(forgotten)
            return f"the receiver forgets {', '.join(forgotten)}"
        self.mood, self._until = self._random.choice(list(Mood)), now + self._random.randint(_MIN_MS, _MAX_MS)
        return f"the receiver is {self.mood} until {self._until}"

    def heal(self) -> None:
        self.mood, self._is_healed = Mood.AWAKE, True
        self._poison = self._barred = frozenset()

    def call(self, claim: Claim, now: int) -> Answer | NoAnswer:
        """Answer a call, at once."""
        if now >= self._until:
            self.mood = Mood.AWAKE
        reply = self._in_mood() or self._answer(claim, now)
        kind = str(reply.status) if isinstance(reply, Answer) else reply.trouble.value
        self.answered.setdefault(claim.row, Counter())[f"{claim.step} {kind}"] += 1
        return reply

    def _in_mood(self) -> Answer | NoAnswer | None:
        chance = self._random.random()
        if self.mood is Mood.ASLEEP:
            return Answer(503, "currently suspended") if chance < 0.6 else Answer(503, "", self._random.choice((1_000, 20_000)))
        if self.mood is Mood.LOCKED:
            return Answer(401)
        if self.mood is Mood.GONE:
            return NoAnswer(Trouble.UNREACHABLE, "connection refused")
        if self.mood is Mood.ERRING and chance < 0.9:
            return Answer(500 if chance < 0.5 else 503)
        if self.mood is Mood.BUSY and chance < 0.6:
            return Answer(429, "", 2_000) if chance < 0.2 else Answer(400, "5 connections allowed")
        return None

    def _answer(self, claim: Claim, now: int) -> Answer | NoAnswer:
        breaks = not self._is_healed and self._random.random() < (0.5 if self.mood is Mood.FRAGILE else 0.03)
        if breaks and self._random.random() < 0.3:
            return NoAnswer(Trouble.BROKEN, "broken before it was taken")
        answer = self._handled(claim, now)
        return NoAnswer(Trouble.BROKEN, "broken after it was taken") if breaks else answer

    def _handled(self, claim: Claim, now: int) -> Answer:
        unit = claim.key
        if claim.step is Step.VERIFY:
            return Answer(200 if unit in self._known_at and now >= self._known_at[unit] else 404)
        if unit in self._plan.unwanted:
            return Answer(422, "this unit is not wanted")
        if unit in self._barred:
            return Answer(403)
        if claim.step is Step.ANNOUNCE:
            delay = 0 if self._is_healed else self._random.choice((0, 0, 2_000, 8_000))
            is_new = self._known_at.setdefault(unit, now + delay) > now
            return Answer(201 if is_new else 409)
        return self._delivered(claim)

    def _delivered(self, claim: Claim) -> Answer:
        if Step.ANNOUNCE in self._plan.receiver.steps.all and claim.key not in self._known_at:
            return Answer(404, "this unit is not known")
        if claim.notification_id in self._poison:
            return Answer(418)
        if claim.notification_id in self._plan.unwanted:
            return Answer(422)
        if claim.notification_id in self.taken:
            return Answer(409)
        self.taken.add(claim.notification_id)
        return Answer(202)
