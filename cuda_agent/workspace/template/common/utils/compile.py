"""Builds kernels/ into the extension module with the judge's own build code, and prints [PASS] or the first error."""

import os
import sys

sys.path.insert(0, os.environ["CUDA_AGENT_PACKAGE"])

from cuda_agent.judge.build import main

if __name__ == "__main__":
    sys.exit(main())
