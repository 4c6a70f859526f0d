"""Lake formats: further registrations of the files that a table has anyway."""
