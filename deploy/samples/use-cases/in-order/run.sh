#!/bin/sh
# One in flight, in order: a message that must be tried again holds those behind it.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
# 75 asks for another try (EX_TEMPFAIL).
exec logpipeline consume ledger -f logpipeline.yaml --group --in-order --on-error retry --exec ./book.sh
