"""Storage `redis`: a Redis server or a Redis Cluster; a commit is one script."""
