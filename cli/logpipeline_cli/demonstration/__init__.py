"""The parts of the demo: the running pipeline and application, the screen, and the check."""
