"""The command `delivery`: its workers, its jobs, and what is blocked in topics."""
