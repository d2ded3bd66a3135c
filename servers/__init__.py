"""Real Kafka, Redis and Infinispan servers on loopback, for trials and tests. Imports none of the service's packages."""
