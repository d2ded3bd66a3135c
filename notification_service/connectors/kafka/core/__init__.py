"""Decisions without a client: ownership of partitions, size limits of topics, meaning of options. Pure."""
