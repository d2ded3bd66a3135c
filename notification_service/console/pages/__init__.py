"""The pages that operators see: HTML that works without script."""
