"""The same quantizers on a live model: no graph, so that control flow, hooks and debuggers work."""

from quaver.eager.input_spec import InputSpec
from quaver.eager.qat import QAT

__all__ = ["QAT", "InputSpec"]
