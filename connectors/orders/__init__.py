"""Orders: the log that operators append to and owners of partitions read, and the outcomes that owners publish."""
