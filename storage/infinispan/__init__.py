"""Storage `infinispan`: segments, pages and indexes as values of a cache, over REST."""
