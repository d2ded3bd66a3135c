"""The command `archive`: moves processed input into the archive, as far as it may go."""
