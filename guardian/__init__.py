"""One worker: the guardian actor and its system, deadlines, positions, and the cycle that does the I/O."""
