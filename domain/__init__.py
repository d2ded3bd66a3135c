"""The types that all packages share: records, envelopes, notifications, dead letters, errors, the clock. No I/O."""
