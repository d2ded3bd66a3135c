"""The Java that servers and Spark run on, their jars from Maven Central, and how they log."""
