#!/bin/sh
# Stores a batch under its name, in one step: to do it twice is to do it once.
set -eu
mkdir -p loaded
cat > "loaded/.$$"
mv "loaded/.$$" "loaded/$LOGPIPELINE_BATCH"
