#!/bin/sh
# Push to out.logs.p<N>, nothing acknowledged: for an fshipper consumer.
# It gives up what is on its way when the reader dies. What comes while the reader is away waits.
# The server: NATS_URL.
set -eu
logpipeline apply -f logpipeline.yaml >&2
export SHIPPER_SUBJECT=logs SHIPPER_READ_PARTITIONS=0,1,2
export SHIPPER_STREAM_TARGET=out.logs
export SHIPPER_DIRECTORY=files SHIPPER_OUTPUT=app.log
exec logpipeline collect
