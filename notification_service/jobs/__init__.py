"""The PySpark jobs. Only this package imports pyspark; the service runs without it."""
