"""``quaver.name_scope``: a name for a part of a model's forward, for skip patterns to find."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx import traceback

KEY = "quaver_scope"


@contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Add ``name`` to the scope of every op called inside; without effect outside of `quaver.capture`.

    >>> import torch
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         with name_scope("skip_quant"):
    ...             return x + x
    """
    outer = traceback.current_meta.get("custom", {}).get(KEY, "")
    with traceback.annotate({KEY: f"{outer}.{name}" if outer else name}):
        yield
