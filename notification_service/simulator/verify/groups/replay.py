"""Replays the facts of a group: what its payments are at any moment, and whether they are through."""

from collections.abc import Collection
from decimal import Decimal

from notification_service.simulator.verify.groups.counts import Counts, Payment, Stated, count, number, whole_number
from notification_service.simulator.verify.groups.observation import ObservedFact

_LONGEST_ID = 35
_NOT_PROVIDED = "NOTPROVIDED"


class ReplayedGroup:
    """The payments of a group after the facts that were applied, in their order.

    `first_through` are the counts at the first moment at which a report on a complete group is due, None before it; `later` are
    all other counts since then. `total` and `control_sum` are those that the first fact that has them says.
    """

    def __init__(self) -> None:
        self.payments: dict[str, Payment] = {}
        self.total: int | None = None
        self.control_sum: Decimal | None = None
        self.is_contradictory = False
        self._stated: dict[str, Stated] = {}
        self.first_through: Counts | None = None
        self.later: list[Counts] = []
        self._final = 0

    def apply(self, fact: ObservedFact, finals: Collection[str]) -> None:
        self._note_message(fact)
        before = self.payments.get(fact.unit)
        if before is not None and fact.is_late:
            return
        after = _after(before, fact)
        if after == before:
            return
        self._final += (after.status in finals) - (before is not None and before.status in finals)
        self.payments[fact.unit] = after
        self._note_instruction(after.instruction, fact)
        if self.first_through is not None:
            self.later.append(self.counts())
        elif self.is_through:
            self.first_through = self.counts()

    @property
    def is_through(self) -> bool:
        """Whether all payments are there and final, and the message says nothing else."""
        return self.is_counted and self.adds_up

    @property
    def is_counted(self) -> bool:
        return self.total is not None and self._final == len(self.payments) == self.total and not self.is_contradictory

    @property
    def missing(self) -> int:
        """How many payments have no final status."""
        return max(self.total or 0, len(self.payments)) - self._final

    def counts(self) -> Counts:
        return count(self.payments.values(), self._stated, has_status=self.is_through)

    @property
    def adds_up(self) -> bool:
        """Whether there is no control sum, or all amounts are known and their sum is that."""
        amounts = [each.amount for each in self.payments.values() if each.amount is not None]
        are_known = len(amounts) == len(self.payments)
        return self.control_sum is None or (are_known and sum(amounts, Decimal()) == self.control_sum)

    def _note_message(self, fact: ObservedFact) -> None:
        total, control_sum = whole_number(fact.total), number(fact.control_sum)
        if self.total is None:
            self.total = total
        if self.control_sum is None:
            self.control_sum = control_sum
        self.is_contradictory |= total not in (None, self.total) or control_sum not in (None, self.control_sum)

    def _note_instruction(self, name: str | None, fact: ObservedFact) -> None:
        """Take over what a payment information says of itself: of each number the first that is valid."""
        if name is not None:
            known = self._stated.get(name, Stated())
            total = whole_number(fact.instruction_total) if known.total is None else known.total
            control_sum = number(fact.instruction_sum) if known.control_sum is None else known.control_sum
            self._stated[name] = Stated(total, control_sum)


def _after(before: Payment | None, fact: ObservedFact) -> Payment:
    amount, instruction = number(fact.amount), fact.instruction
    if instruction is not None and not 0 < len(instruction) <= _LONGEST_ID:
        instruction = _NOT_PROVIDED
    if before is not None:
        amount = before.amount if amount is None else amount
        instruction = before.instruction if instruction is None else instruction
    return Payment(fact.status, amount, instruction)
