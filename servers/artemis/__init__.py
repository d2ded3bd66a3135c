"""An Artemis broker for AMQP 1.0 and MQTT."""
