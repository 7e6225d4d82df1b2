"""Retention by consumption: removes packages that all registered subscribers have, within bounds of age and size."""
