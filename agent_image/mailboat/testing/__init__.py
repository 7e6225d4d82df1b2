"""Contract suites, memory adapters and clocks for tests of adapters. Needs `mailboat[testing]`; not for production."""
