"""The kind Distribution."""
