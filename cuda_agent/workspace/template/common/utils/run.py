"""python3 -m utils.run SCRIPT [ARGUMENT...]: a measuring script of your own, alone on the device, for at most 10 seconds.

It runs on a copy of this folder; what it prints comes back, the files it writes do not.
"""

import sys

from utils._judge import ask

if __name__ == "__main__":
    sys.exit(ask({"command": "run", "script": sys.argv[1:]}))
