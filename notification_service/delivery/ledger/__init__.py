"""The ledger: the rows of all deliveries, their keys, gates and jobs, in SQLite or PostgreSQL."""
