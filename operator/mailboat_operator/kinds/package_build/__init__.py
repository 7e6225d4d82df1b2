"""The kind PackageBuild."""
