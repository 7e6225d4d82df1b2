"""Distinguishes errors of Spark from our own, without importing PySpark: it is an extra."""

from __future__ import annotations


def is_of_spark(error: Exception) -> bool:
    """Whether PySpark, or what it talks to Java by, raised an error."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}
