"""Makes of a LogPipeline what it asks for, in Kubernetes and in JetStream, and says how it is."""
