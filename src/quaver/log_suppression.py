"""Keep the logs and warnings of other packages off the screen, on import and in use."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_logs(up_to: int = logging.WARNING) -> Iterator[None]:
    """Suppress logs up to this level."""
    before = logging.root.manager.disable
    logging.disable(up_to)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def suppressed_logs() -> Iterator[None]:
    """Suppress logs and warnings up to the level of a warning; errors are still raised."""
    with without_logs(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
