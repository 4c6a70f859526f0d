#!/bin/sh
# Unacknowledged shipping, a line per message: raw lines without headers, as fshipper sent them.
# It gives up certainty: what a cut connection swallows is gone, what a killed shipper sent in its
# last moments comes twice, and nobody knows.
# The server: NATS_URL, or spec.nats.servers.
set -eu
logpipeline apply -f logpipeline.yaml >&2
exec logpipeline ship -f logpipeline.yaml --data positions
