"""A small busy machine with a ledger, and the oracle that checks what arrived of it."""
