"""The limit of the output of one cycle's turns, in bytes, so that a cycle fits into memory, a commit and a publication."""


class OutputLimit:
    """Two shares of bytes: the first for remainders of earlier turns, the second and the rest of the first for other turns.

    So neither kind holds up the other. A turn may exceed its share by one envelope, and by its unit's payment data.
    """

    def __init__(self, share: int) -> None:
        assert share > 0
        self._share = share
        self._of_remainders = 0
        self._of_others = 0

    def for_remainder(self) -> int:
        """How many bytes the next turn of a remainder may let out; 0 if it has to wait."""
        return max(0, self._share - self._of_remainders)

    def for_other(self) -> int:
        """How many bytes the next other turn may let out; 0 if its envelopes have to wait."""
        left = 2 * self._share - min(self._share, self._of_remainders) - self._of_others
        return max(0, min(self._share, left))

    def note(self, let_out: int, *, is_remainder: bool) -> None:
        if is_remainder:
            self._of_remainders += let_out
        else:
            self._of_others += let_out
