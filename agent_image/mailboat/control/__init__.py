"""What people and programs may ask of a distribution system: one port, the same on a home and over HTTP."""
