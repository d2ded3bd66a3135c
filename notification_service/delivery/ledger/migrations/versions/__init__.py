"""The versions of the ledger's tables: one module for each, which changes the tables of the version before it."""
