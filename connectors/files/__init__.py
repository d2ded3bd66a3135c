"""The file transport: partition files in, notifications and dead letters out, exactly once."""
