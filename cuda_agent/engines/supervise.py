"""Runs a command and ends its whole process group as soon as standard input closes: nothing outlives its owner.

`python supervise.py COMMAND...`, in a process group of its own. Ends with the command's exit status.
"""

import os
import select
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    """Run until the command ends or the owner does; the latter does not return."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(child.pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if ended in ready:
            return child.wait()
        if not os.read(0, 4_096):
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
