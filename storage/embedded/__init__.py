"""Storage `embedded`: SQLite, for one machine."""
