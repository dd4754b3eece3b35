"""Child processes that never outlive the test that started them."""

import os
import signal
import subprocess
from contextlib import contextmanager, suppress


@contextmanager
def child(command, **options):
    """A process with a session of its own. When the ``with`` block ends, however it ends, it and its children are gone.

    It hears Ctrl-C even where pytest itself was told not to (a shell starts what runs in the background like that).
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    hears = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    started = subprocess.Popen([str(word) for word in command], start_new_session=True, preexec_fn=hears, **options)
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):  # all of them ended by themselves
            os.killpg(started.pid, signal.SIGKILL)
        with started:  # closes its pipes, and waits
            pass
