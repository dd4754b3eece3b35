"""How often the right class is among the first k."""

import numpy as np
from numpy.typing import NDArray

from quaver.errors import InputError


def top_k_hits(logits: NDArray[np.floating], labels: NDArray[np.integer], k: int) -> NDArray[np.bool_]:
    """For each row of ``logits`` (images x classes): is its label among the ``k`` largest?

    Of equal logits the lower class comes first; a label whose logit is not a number is never a hit.

    >>> top_k_hits(np.array([[1.0, 3.0, 3.0], [1.0, 3.0, 3.0]]), np.array([1, 2]), 1)
    array([ True, False])
    """
    classes = logits.shape[1]
    if labels.size and not (labels.min() >= 0 and labels.max() < classes):
        raise InputError(f"labels from {labels.min()} to {labels.max()} and {classes} logits: a label is 0..{classes - 1}.")
    own = logits[np.arange(len(logits)), labels][:, None]
    before = np.arange(classes) < labels[:, None]
    ahead = ((logits > own) | ((logits == own) & before)).sum(axis=1)
    hits: NDArray[np.bool_] = (ahead < k) & ~np.isnan(own[:, 0])
    return hits
