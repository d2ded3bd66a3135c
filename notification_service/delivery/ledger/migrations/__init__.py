"""The changes of the ledger's tables, from version to version (Alembic)."""
