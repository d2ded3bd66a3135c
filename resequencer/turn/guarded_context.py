"""A guarded turn context: a failure of strategy or handler costs only its envelope, for our code as for a user's."""

from msgspec.structs import replace

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError, TransientError, our_mistake
from resequencer.flow_profiles import Profiles
from resequencer.handlers.port import Handled, Handler, Marks
from resequencer.payment_data import PaymentData
from resequencer.strategies.foreign import ForeignStrategy
from resequencer.turn.context import TurnContext


def guarded(context: TurnContext) -> TurnContext:
    """Return the same context, guarded: what strategy or handler raise becomes a `PermanentError`; failing profiles give None.

    `TransientError` of the handler passes unchanged.
    """
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
        """Return None after any error: the envelope must not be lost because its wait is unknown."""
        try:
            return self._profiles.find_lateness_ms(entity, flow)
        except Exception:  # noqa: BLE001 - The failed turn before this one has logged the error.
            return None
