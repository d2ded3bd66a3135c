"""The archive: what the topics held, as Parquet, each record once."""
