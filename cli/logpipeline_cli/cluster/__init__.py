"""`kubectl logpipeline`: commands for a pipeline in a cluster. Only this package imports pykube."""
