"""Makes stores, aggregation workers and their views from the configuration."""
