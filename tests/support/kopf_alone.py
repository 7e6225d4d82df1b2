"""Loaded before kopf: it would load the client of the e2e tests where that is installed, and log in by it."""

import sys

sys.modules["kubernetes"] = None  # type: ignore[assignment]  # so that importing it fails; it would take 0.3 CPU seconds
