"""What an agent tells about itself: metrics, logs, traces, and events for others."""
