"""Attention in float: products of queries and keys, their shares, and what these make of the values."""

import math

import numpy as np
from torch import fx

from quaver.engines.litert.flatbuffer import FileTensor
from quaver.engines.litert.pointwise import joined, with_number
from quaver.engines.litert.translator import Translation, Translator, Value, as_given
from quaver.errors import EngineError
from quaver.graph.nodes import argument

FORBIDDEN = -1e9  # an exponent so far below all others that its share is 0


def attention(t: Translator, node: fx.Node) -> Value:
    """``softmax(q · k^T · scale + mask) · v``."""
    if argument(node, "is_causal") or argument(node, "enable_gqa"):
        raise EngineError(
            f"LiteRT: {t.title(node)!r}: attention that is causal or shares keys has no form in a .tflite file yet. Give it "
            "a mask."
        )
    q, k, v = (t.operand(value) for value in node.args[:3])
    q, k, v = (t.ordered(value, as_given(value.rank)) for value in (q, k, v))
    name, scale = t.title(node), argument(node, "scale")
    scaled = with_number(t, "MUL", q, 1 / math.sqrt(q.shape[-1]) if scale is None else scale, f"{name}.scaled")
    like = Value(FileTensor(-1, (*q.shape[:-1], k.shape[-2]), np.dtype(np.float32)), as_given(q.rank))
    logits = t.emit("BATCH_MATMUL", [scaled, k], like, f"{name}.logits", adjX=False, adjY=True)
    if (mask := argument(node, "attn_mask")) is not None:
        logits = joined(t, "ADD", node, logits, t.operand(added(t, mask)))
    shares = t.emit("SOFTMAX", [logits], logits, f"{name}.shares", beta=1.0)
    return t.emit("BATCH_MATMUL", [shares, v], t.like(node, as_given(q.rank)), name, adjX=False, adjY=False)


def added(t: Translator, mask: fx.Node) -> fx.Node:
    """What a mask adds, as a node: a constant of True and False forbids where it is False."""
    stored = t.constants.get(mask)
    if stored is not None and not stored.dtype.is_floating_point:
        t.constants[mask] = (~stored).float() * FORBIDDEN
    return mask


TRANSLATIONS: dict[str, Translation] = {"scaled_dot_product_attention": attention}
