"""The Kafka transport: reads as a member of a consumer group, and publishes in transactions."""
