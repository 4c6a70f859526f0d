#!/bin/sh
# Loads the lines of a batch; replace it with what you have to do.
set -eu
mkdir -p loaded
cat > "loaded/.$$"
mv "loaded/.$$" "loaded/$LOGPIPELINE_BATCH"
