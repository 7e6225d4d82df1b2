"""What commands and agents do to a home: snapshots, package files, checks, benchmarks."""
