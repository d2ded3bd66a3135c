"""Delivery straight from topics of Kafka, without the ledger: blocking and retry topics (docs/delivery.md)."""
