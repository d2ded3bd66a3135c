"""What the commands that start Spark jobs share."""
