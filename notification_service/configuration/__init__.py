"""From HOCON files to typed, validated values: the schema of keys, the constraints between them, and every refusal at once."""
