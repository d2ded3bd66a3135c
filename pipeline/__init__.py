"""The PySpark jobs. The only room that imports pyspark; the service runs without it."""
