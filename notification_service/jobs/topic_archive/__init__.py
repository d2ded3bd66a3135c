"""The archive: the records of the topics as Parquet, each record once."""
