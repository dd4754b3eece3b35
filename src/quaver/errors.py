"""Every error a user of Quaver can cause.

::

    QuaverError
    ├── CaptureError      the model cannot be turned into a graph
    ├── ConfigError       an option has an unknown name, a wrong type or an impossible value
    ├── InputError        a program was called with inputs it was not captured for
    ├── StageError        a step was taken in the wrong order
    ├── ConversionError   a quantizer has no form in 8-bit integers
    ├── StorageError      a saved program, checkpoint or file of weights is missing, damaged or does not fit
    ├── TrainingError     training went wrong: NaN, a range that exploded, a tensor that died
    ├── StoppedError      a run was asked to stop, and saved itself first
    ├── EngineError       an engine is not installed, or cannot run a program
    └── DataError         a data set is missing, damaged or not in the layout it should have

Messages say the place, the fact and the way out, in that order.
"""


class QuaverError(Exception):
    """Anything Quaver refuses to do, with the reason and the way out."""


class CaptureError(QuaverError):
    """The model cannot be turned into a graph. ``fact`` is the message without the way out, which depends on the caller."""

    def __init__(self, message: str, fact: str = "") -> None:
        super().__init__(message)
        self.fact = fact or message


class ConfigError(QuaverError, ValueError):
    """One or more options are wrong; the message lists all of them."""


class InputError(QuaverError, ValueError):
    """A program was called with inputs it was not captured for."""


class StageError(QuaverError):
    """A step was taken in the wrong order."""


class ConversionError(QuaverError):
    """A quantizer has no form in 8-bit integers."""


class StorageError(QuaverError):
    """A saved program, checkpoint or file of weights is missing or damaged, does not fit, or could not be written."""


class TrainingError(QuaverError):
    """Training went wrong; the message names the tensor and what to try."""


class StoppedError(QuaverError):
    """A run was asked to stop by a signal, and saved itself first."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number
        """What a shell expects of a program that a signal stopped."""


class EngineError(QuaverError):
    """An engine that was asked for is not installed, or cannot run a program."""


class DataError(QuaverError):
    """A data set is missing, damaged, or not in the layout it should have."""


class QuaverWarning(UserWarning):
    """Something the user should know that does not stop the work."""
