"""Where content comes from (`sources/`), where it goes to (`targets/`), and what can be said of it (digest, diff)."""
