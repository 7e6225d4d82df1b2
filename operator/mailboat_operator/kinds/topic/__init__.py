"""The kind Topic."""
