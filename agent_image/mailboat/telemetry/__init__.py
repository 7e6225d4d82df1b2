"""Telemetry of an agent: metrics, logs, traces, and events for others."""
