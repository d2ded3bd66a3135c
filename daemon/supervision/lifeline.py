"""The pipe between a supervisor and its worker: it is cut to stop the worker, and by itself when the supervisor dies."""

import os
from select import select


class Lifeline:
    """The worker's end. Nothing is ever written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def is_cut(self) -> bool:
        """The supervisor closed its end, on purpose or by dying."""
        readable, _, _ = select([self._descriptor], [], [], 0)
        return bool(readable)
