"""Real Kafka, Redis and Infinispan servers on loopback, for trying and for tests. Imports nothing of ours."""
