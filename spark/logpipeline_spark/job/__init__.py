"""The job that keeps a table: a streaming query, and what it does with each of its batches."""
