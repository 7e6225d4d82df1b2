"""The composition root: settings, the embedded home, and the wiring of engine parts for command line and pods."""
