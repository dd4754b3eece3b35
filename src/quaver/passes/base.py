"""What every pass is: Program in, Program out, nothing changed on the way."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from itertools import starmap
from typing import Any, ClassVar

from quaver.checking import names, or_none
from quaver.config.options import Checked
from quaver.errors import StageError
from quaver.garbage import without_collecting
from quaver.operators import OP_TYPES, WEIGHTED
from quaver.passes.redundant_options import PLACE, SCOPE, redundant_option, refuse_fewer_types, refuse_other_place
from quaver.program import Program, Stage
from quaver.program.history import PassApplied


@dataclass(frozen=True)
class Pass(ABC):
    """One idea applied to a program. `apply` checks the stage and the resulting graphs; an author writes `rewrite`."""

    needs: ClassVar[tuple[Stage, ...]]
    otherwise: ClassVar[str]
    """What to do when the program is at another stage, in words."""

    scope: Any = redundant_option(SCOPE, "Accepted as None: a program holds its own tensors.")
    place: Any = redundant_option(PLACE, "The device that the program is on; program.to(device) moves it.")

    @without_collecting()
    def apply(self, program: Program) -> Program:
        """The program with this pass applied; the one given is left as it was."""
        self.check(program)
        return concluded(self.rewrite(program), program, self)

    def check(self, program: Program) -> None:
        """Refuse a program that the pass is not for; have its graphs say what its modules say."""
        name = type(self).__name__
        if not isinstance(program, Program):
            raise StageError(f"{name}: takes a Program, not {type(program).__name__}. quaver.capture makes one of a model.")
        if program.stage not in self.needs:
            wanted = " or ".join(stage.value for stage in self.needs)
            raise StageError(f"{name}: the program is {program.stage.value}, and the pass needs {wanted}. {self.otherwise}")
        if program.for_test:
            raise StageError(f"{name}: the program is an evaluation view. Apply passes to the program it was cloned from.")
        refuse_other_place(name, program, self.scope, self.place)
        program.settle()

    @abstractmethod
    def rewrite(self, program: Program) -> Program:
        """The pass itself."""


@dataclass(frozen=True, kw_only=True)
class SaidTypes(Checked, Pass):
    """A pass that may be told again which ops with weights were quantized."""

    quantizable_op_type: str | tuple[str, ...] | list[str] | None = redundant_option(
        or_none(names(OP_TYPES)), "The types of the quantized ops, as they are in the program."
    )

    def check(self, program: Program) -> None:
        """Refuse another list than the program's, too."""
        super().check(program)
        if self.quantizable_op_type is not None:
            refuse_fewer_types(type(self).__name__, program, "quantizable_op_type", self.quantizable_op_type, WEIGHTED)


def concluded(result: Program, program: Program, *passes: Pass) -> Program:
    """What passes made of a program: its graphs checked, the passes in its history."""
    for graph in result.graphs.values():
        graph.lint()
    named_options = list(map(_made_with, passes))
    result.history = (*program.history, *starmap(PassApplied.of, named_options))
    return result


def _made_with(applied: Pass) -> tuple[str, dict[str, Any]]:
    """A pass's name, and the options that had a say in the program, not what was merely said again."""
    return type(applied).__qualname__, {field.name: getattr(applied, field.name) for field in fields(applied) if field.repr}
