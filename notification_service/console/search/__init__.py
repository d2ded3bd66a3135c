"""The one search: whatever an operator has the id of."""
