"""The kind JobQueue."""
