"""Retention by consumption: packages go once everybody who matters has them, within bounds of age and size."""
