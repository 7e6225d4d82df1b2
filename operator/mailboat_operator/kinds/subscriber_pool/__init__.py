"""The kind SubscriberPool."""
