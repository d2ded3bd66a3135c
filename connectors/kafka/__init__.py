"""The Kafka transport: a member of a consumer group in, one transaction per publication out."""
