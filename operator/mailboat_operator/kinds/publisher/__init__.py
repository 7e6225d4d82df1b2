"""The kind Publisher."""
