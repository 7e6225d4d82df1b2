"""What publishers, pools and builds share: their pods, volumes, configuration, and why pods do not run."""
