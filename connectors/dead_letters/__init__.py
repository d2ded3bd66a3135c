"""Dead letters as an operator looks at them and decides on them, whatever the transport."""
