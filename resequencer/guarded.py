"""A turn context whose strategy and handler harm no more than the envelope that they fail on, ours like a user's."""

from msgspec.structs import replace

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError, TransientError, our_mistake
from resequencer.flow_profiles import Profiles
from resequencer.handlers.port import Handled, Handler, Marks
from resequencer.payment_data import PaymentData
from resequencer.strategies.foreign import ForeignStrategy
from resequencer.turn_context import TurnContext


def guarded(context: TurnContext) -> TurnContext:
    """The same context; whatever strategy or handler raise is a `PermanentError`, and profiles that fail say nothing."""
    strategy, profiles = context.strategy, context.profiles
    return replace(
        context,
        strategy=strategy if isinstance(strategy, ForeignStrategy) else ForeignStrategy(strategy, strategy.name),
        handler=_GuardedHandler(context.handler),
        profiles=None if profiles is None else _GuardedProfiles(profiles),
    )


class _GuardedHandler:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        try:
            return self._handler.handle(envelope, data, marks, now)
        except (TransientError, PermanentError):
            raise
        except Exception as error:
            raise PermanentError(our_mistake(error)) from error


class _GuardedProfiles:
    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        """How long to wait is no reason to lose what is to wait."""
        try:
            return self._profiles.find_lateness_ms(entity, flow)
        except Exception:  # noqa: BLE001 - Whatever it is, the turn before has logged it.
            return None
