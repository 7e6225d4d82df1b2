"""What a home is made of: its configuration, places, secrets and adapters, opened when first needed."""
