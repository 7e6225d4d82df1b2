"""Discovery: subscribers announce themselves, and readers fold the announcements into a roster."""
