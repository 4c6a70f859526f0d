#!/bin/sh
# Books each line; where the ledger cannot be reached, it asks for another try.
set -eu
[ ! -e unreachable ] || exit 75
cat >> ledger
