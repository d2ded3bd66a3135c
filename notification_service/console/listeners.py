"""How many connections listen to events, all kinds of them together."""

from collections.abc import AsyncIterator
from http import HTTPStatus

from starlette.exceptions import HTTPException

MOST = 100
"""Each page that listens keeps a connection; half of those that the server has are left for requests."""


class Listening:
    """Counts those that listen now. Used by the server's thread alone, but for `check`."""

    def __init__(self) -> None:
        self.count = 0

    def check(self) -> None:
        """Raises HTTPException (503): As many listen as may."""
        if self.count >= MOST:
            problem = "too many pages are open; load this one again to see what is new"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, problem, {"Retry-After": "10"})

    async def counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yield the events, and count the listener while it gets them."""
        self.count += 1
        try:
            async for each in events:
                yield each
        finally:
            self.count -= 1
            if hasattr(events, "aclose"):
                await events.aclose()
