"""The parts of ``logpipeline inject``: the sidecar of a workload, and the text of manifests."""
