"""Access to Spark: its session, virtual machine, errors, and connector for Kafka."""
