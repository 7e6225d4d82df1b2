"""Subscribers announce themselves, and anyone may fold the announcements into a picture of who is there."""
