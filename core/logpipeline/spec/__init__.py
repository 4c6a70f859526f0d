"""The LogPipeline resource: what a user may write, checked as a whole, and its CRD."""
