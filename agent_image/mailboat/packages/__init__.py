"""Packages: what one request ships, in one of several formats behind a registry keyed by the message's package type."""
