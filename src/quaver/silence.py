"""Keep what others log and warn about, on import and at work, off the screen."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_logs(up_to: int = logging.WARNING) -> Iterator[None]:
    """Nothing is logged up to this level."""
    before = logging.root.manager.disable
    logging.disable(up_to)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing is logged or warned about up to the level of a warning; errors are raised as ever."""
    with without_logs(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
