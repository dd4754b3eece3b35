"""What every pass is: Program in, Program out, nothing changed on the way."""

from abc import ABC, abstractmethod
from typing import ClassVar

from quaver.errors import StageError
from quaver.program import Program, Stage
from quaver.program.history import PassApplied


class Pass(ABC):
    """One idea applied to a program. `apply` checks the stage and the resulting graphs; an author writes `rewrite`."""

    needs: ClassVar[tuple[Stage, ...]]
    otherwise: ClassVar[str]
    """What to do when the program is at another stage, in words."""

    def apply(self, program: Program) -> Program:
        """The program with this pass applied; the one given is left as it was."""
        self.check(program)
        return concluded(self.rewrite(program), program, self)

    def check(self, program: Program) -> None:
        """Refuse a program that the pass is not for."""
        name = type(self).__name__
        if not isinstance(program, Program):
            raise StageError(f"{name}: takes a Program, not {type(program).__name__}. quaver.capture makes one of a model.")
        if program.stage not in self.needs:
            wanted = " or ".join(stage.value for stage in self.needs)
            raise StageError(f"{name}: the program is {program.stage.value}, and the pass needs {wanted}. {self.otherwise}")
        if program.for_test:
            raise StageError(f"{name}: the program is an evaluation view. Apply passes to the program it was cloned from.")

    @abstractmethod
    def rewrite(self, program: Program) -> Program:
        """The pass itself."""


def concluded(result: Program, program: Program, *passes: Pass) -> Program:
    """What passes made of a program: its graphs checked, the passes in its history."""
    for graph in result.graphs.values():
        graph.lint()
    applied = [PassApplied.of(type(one).__qualname__, vars(one)) for one in passes]
    result.history = (*program.history, *applied)
    return result
