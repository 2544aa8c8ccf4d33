#!/bin/bash
# Builds kernels/ for feedback. The judge always builds again from the sources.
cd "$(dirname "$0")/.." && exec python3 -S -E utils/compile.py "$@"
