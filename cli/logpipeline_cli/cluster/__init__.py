"""The command against a cluster: `kubectl logpipeline`. The only part of it that imports pykube."""
