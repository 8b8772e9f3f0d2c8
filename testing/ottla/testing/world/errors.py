"""Exceptions that a simulated world raises. They are public in `ottla.testing.world`."""

from collections.abc import Sequence


class CheckFailedError(AssertionError):
    """Raised by a checker if the results of the program are not correct."""

    def __init__(self, message: str, *, check: str, keys: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.check = check
        """Name of the checker, such as `exactly_once`."""
        self.keys = list(keys)
        """Keys of all wrong inputs and outputs, including missing outputs."""


class WorldError(Exception):
    """Raised if a test uses a simulated world incorrectly, for example with an instance name that
    is already in use."""


class ClusterFailedError(Exception):
    """Raised if a node of the simulated cluster failed by a bug of Ottla. The program under test is
    not the cause."""


class NotInWorldError(RuntimeError):
    """Error for a call of a program that a simulated world does not support, such as the start of a
    thread. The message names the replacement."""


class ProgramExitError(Exception):
    """Failure of an instance whose program called `sys.exit` with an error, or was cancelled by its
    own code. Like any other failed program, the instance is started again."""


class NondeterminismError(AssertionError):
    """Raised if two runs with the same plan, faults and seed differ."""


class SharedGlobalsWarning(UserWarning):
    """Warning that instances of a program have shared global variables, and changed them. Separate
    processes would not share them."""
