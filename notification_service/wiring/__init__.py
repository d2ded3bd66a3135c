"""Makes the parts of the service from the configuration: workers, regions, delivery, groups, the bridge, the console."""
