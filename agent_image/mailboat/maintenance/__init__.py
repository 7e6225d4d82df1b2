"""Scheduled upkeep of journal and blob store: expiry, retention by consumption, sweeps, topics."""
