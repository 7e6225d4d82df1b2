"""`mailboat demo`: the main job on a real tree, with real processes, one of which is killed half way."""
