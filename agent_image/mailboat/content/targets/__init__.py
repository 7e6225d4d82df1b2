"""Where content is imported to: `sqlite`, `files` and `generations`, each holding content and position as one."""
