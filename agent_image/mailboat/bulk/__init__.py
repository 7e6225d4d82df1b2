"""Building many packages at once with Spark, and publishing them in order."""
