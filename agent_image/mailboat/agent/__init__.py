"""An agent's process: its threads, health, start and end."""
