"""A mosquitto broker for MQTT."""
