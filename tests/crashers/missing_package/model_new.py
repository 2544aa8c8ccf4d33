import a_package_that_nobody_has
import torch.nn as nn


class ModelNew(nn.Module):
    pass
