"""Contract suites, fakes and generators for tests of Mailboat and of what is built on it; never used in production."""
