"""The local copy of the index of what waits: a million units page as fast as a hundred."""
