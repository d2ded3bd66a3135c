"""What arrives: a record's bytes, decoded to a data envelope, and the trace context that it carries."""
