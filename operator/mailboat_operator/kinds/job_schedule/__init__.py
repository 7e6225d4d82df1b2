"""The kind JobSchedule."""
