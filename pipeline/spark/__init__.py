"""Spark itself: its session, its virtual machine, its errors, and its connector for Kafka."""
