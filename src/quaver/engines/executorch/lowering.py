"""A mobile program's graph as ExecuTorch computes it: as XNNPACK does."""

from quaver.xnnpack.lowering import XNNPACKLowering, exact_nodes

lowering = XNNPACKLowering

__all__ = ["exact_nodes", "lowering"]
