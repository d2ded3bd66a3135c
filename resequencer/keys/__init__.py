"""Keys of the configuration: where a setting has its value, and which values it takes."""
