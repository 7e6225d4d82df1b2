"""The HTTP API of an agent."""
