"""Local training and forward passes in compiled code, for small convolutional and dense networks.

`read` turns a module into layers, `Native` computes with them, `choose` decides between it and PyTorch. The kernels
themselves are C++ (``kernel/``).
"""

from ilk.native.choose import Compute, attach, instruction_set, resolve
from ilk.native.network import Native
from ilk.native.read import Layer, Outside, read

__all__ = ["Compute", "Layer", "Native", "Outside", "attach", "instruction_set", "read", "resolve"]
