"""The pipe between a supervisor and its worker. Closing it stops the worker; the kernel closes it when the supervisor ends."""

import os
from select import select


class Lifeline:
    """The worker's end of the pipe. Nothing is ever written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def is_cut(self) -> bool:
        """Whether the supervisor closed its end, or has ended."""
        readable, _, _ = select([self._descriptor], [], [], 0)
        return bool(readable)
