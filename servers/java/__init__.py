"""The Java for servers and Spark, their jars from Maven Central, and their log configuration."""
