"""A PostgreSQL server."""
