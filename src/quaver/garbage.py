"""Python's search for garbage, put off while graphs are built.

It looks at all that is alive, again and again, as long as objects are made; a graph is hundreds of thousands of them, hardly
any of which is garbage. It took a tenth of the time, or more, of a capture.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """No search for garbage in here, if there was any; what is not referred to any more goes at once all the same."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
