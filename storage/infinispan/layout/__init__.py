"""The layout of a partition in the cache: segments, pages, the index over them, and their compaction. Pure."""
