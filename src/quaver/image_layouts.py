"""How a camera's images lie in memory: words that flags and recipes need before anything is computed, so without numpy."""

LAYOUTS = ("NHWC", "NCHW")
COLORS = ("RGB", "BGR")
