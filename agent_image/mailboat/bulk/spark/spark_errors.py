"""The errors of bulk builds that concern Spark itself. Imports no PySpark: it is an extra."""

from __future__ import annotations

from mailboat.errors import RetryableError, UsageError


class SparkMissingError(UsageError):
    """Bulk builds need Spark, and PySpark or Java is missing or too old.

    `pip install "mailboat[spark]"` installs PySpark 4.1 or newer. Install Java 17 or newer, found by
    JAVA_HOME or on the PATH.
    """


class SparkUnavailableError(RetryableError):
    """Spark's JVM runs, but no session could be started at that master. Nothing was built.

    Check the address (`local[*]`, `spark://HOST:PORT`, `k8s://…`), and that master and driver reach each other.
    """


def is_of_spark(error: Exception) -> bool:
    """Whether PySpark, or what it talks to Java by, raised an error."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}
