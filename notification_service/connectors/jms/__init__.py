"""Queues of JMS brokers as source and as sink, by AMQP 1.0."""
