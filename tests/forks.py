"""For scripts that run ``quaver`` in children of one process, so that torch is imported once."""

import os
import signal
import sys
from pathlib import Path

import onnx  # noqa: F401
import onnxscript  # noqa: F401
import openvino  # noqa: F401, imported before the first child is made, as are the others

from children import at_call
from quaver.cli.main import main


def forked(out, words, at=None, number=0):
    """The exit code of ``quaver`` with these words, its output in ``out``.log.

    ``at`` says where it sends itself a signal, as `at_call` takes it. If that is SIGSTOP, it gets ``number`` while it
    stands still, and goes on.
    """
    child = os.fork()
    if child == 0:
        log = os.open(out + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        if at:
            at_call(*at)
        sys.argv = ["quaver", *words]
        try:
            main()
        except SystemExit as end:
            os._exit(end.code or 0)
        os._exit(99)
    if number:
        assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]), Path(out + ".log").read_text()
        os.kill(child, number)
        os.kill(child, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
