"""The kind Journal."""
