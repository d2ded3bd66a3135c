"""How a partition lies in the cache: segments, pages, the index over them, and how they are compacted. Pure."""
