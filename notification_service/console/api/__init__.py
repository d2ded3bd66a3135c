"""The API: JSON under `/api/v1`, described by `openapi.json`."""
