"""The words that everybody shares: records, envelopes, notifications, dead letters, errors, the clock. No I/O."""
