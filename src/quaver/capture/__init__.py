"""nn.Module → Program, and clear words when a model cannot be captured."""

from quaver.capture.capture import capture
from quaver.capture.scope import name_scope

__all__ = ["capture", "name_scope"]
