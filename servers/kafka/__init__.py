"""A Kafka broker in KRaft mode, alone in its cluster."""
