"""The parts of ``logpipeline replay``: the selection, reading, the pace, and the outputs."""
