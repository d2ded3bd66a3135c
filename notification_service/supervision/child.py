"""A child process of the supervisor: it ends when its lifeline ends, and its output is read line by line. No method waits."""

import os
import subprocess
from collections.abc import Callable, Sequence

_READ_BYTES = 65_536
_READS = 8
_LONGEST_LINE_BYTES = 1024 * 1024


class Child:
    """One child at a time. `take` gets each line of its output without its end; a line that is too long comes in parts.

    `process` is None while there is no child, and `output` the descriptor that it prints to, None after the output has ended.
    """

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take
        self._lifeline: int | None = None
        self._begun = b""
        self.process: subprocess.Popen[bytes] | None = None
        self.output: int | None = None

    def start(self, command: Sequence[str], passed: Sequence[int] = ()) -> None:
        """Start this command with `--lifeline` and a descriptor appended. It gets the `passed` descriptors, too.

        Raises:
            OSError: It cannot be started.
        """
        theirs, self._lifeline = os.pipe()
        try:
            self.output, printing = os.pipe()
            try:
                os.set_blocking(self.output, False)
                self.process = subprocess.Popen(  # noqa: S603 - our own command, with the arguments that were checked before.
                    [*command, "--lifeline", str(theirs)],
                    stdin=subprocess.DEVNULL,
                    stdout=printing,
                    stderr=printing,
                    pass_fds=(theirs, *passed),
                )
            finally:
                os.close(printing)
        except OSError:
            self._close_output()
            self.cut()
            raise
        finally:
            os.close(theirs)

    def listen(self) -> None:
        """Take what it has printed so far; a part of it, if it never stops."""
        for _ in range(_READS):
            if self.output is None:
                return
            try:
                printed = os.read(self.output, _READ_BYTES)
            except BlockingIOError:
                return
            self._keep(printed)
            if not printed:
                self._close_output()

    def find_end(self) -> int | None:
        """Return once how it ended (negative for a signal); None while it runs, and while there is none.

        Processes that it started may keep its output open for longer; the supervisor does not wait for that.
        """
        code = None if self.process is None else self.process.poll()
        if code is not None:
            self.listen()
            self.forget()
        return code

    def forget(self) -> None:
        """Close what belongs to a child that has ended, or that is not waited for any longer."""
        self._keep(b"")
        self._close_output()
        self.cut()
        self.process = None

    def cut(self) -> None:
        """Close the lifeline, so that the child drains and ends."""
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def _keep(self, printed: bytes) -> None:
        """Take whole lines. The remainder is kept until its line ends, up to a length; empty: the output has ended."""
        *lines, self._begun = (self._begun + printed).split(b"\n")
        if self._begun and (not printed or len(self._begun) > _LONGEST_LINE_BYTES):
            lines, self._begun = [*lines, self._begun], b""
        for line in lines:
            self._take(line)

    def _close_output(self) -> None:
        if self.output is not None:
            os.close(self.output)
            self.output = None
