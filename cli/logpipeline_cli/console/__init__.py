"""The page of `logpipeline console`: a pipeline in a browser, to look at and not to change."""
