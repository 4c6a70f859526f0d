"""The commands about tables: what their words are, and which table they mean."""
