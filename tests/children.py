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


def forked(work):
    """The id of a child of this process, made by fork, which does some work and ends."""
    started = os.fork()
    if started == 0:
        try:
            work()
        finally:
            os._exit(0)
    return started


def killed_at(owner, name, nth, work):
    """The signal that ended a child that works and kills itself when a function is called for the nth time; or 0."""

    def dying():
        at_call(signal.SIGKILL, owner, name, nth)
        work()

    return os.WTERMSIG(os.waitpid(forked(dying), 0)[1])


def at_call(number, owner, name, nth):
    """Send this process a signal when a function is called for the nth time."""
    works, calls = getattr(owner, name), []

    def function(*args, **kwargs):
        calls.append(1)
        if len(calls) == nth:
            os.kill(os.getpid(), number)
        return works(*args, **kwargs)

    setattr(owner, name, function)
