"""The types that all packages share: records, envelopes, notifications, dead letters, orders, errors, trace context. No I/O."""
