#!/bin/sh
# Stop at the first error that no retry heals; once it is mended, go on in order.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline consume ledger -f logpipeline.yaml --on-error stop --exec ./book.sh
