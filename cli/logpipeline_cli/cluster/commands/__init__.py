"""One module for each command that `kubectl logpipeline` carries out in a cluster."""
