"""Real Kafka, Redis, Infinispan and PostgreSQL servers on loopback, and a receiver of notifications, for trials and tests.

Imports none of the service's packages.
"""
