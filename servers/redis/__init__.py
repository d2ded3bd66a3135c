"""A Redis server, and a Redis Cluster of three masters."""
