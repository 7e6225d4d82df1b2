"""Spark: sources, sinks and jobs. The only room of `pyspark`; what packages are made of lies above, without Spark."""
