"""The parts of ``logpipeline audit``: log files, collected files, and comparing their lines."""
