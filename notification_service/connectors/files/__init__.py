"""The file transport: reads partition files, and writes notifications and dead letters exactly once."""
