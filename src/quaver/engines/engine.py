"""What Quaver asks of an engine. Each is a folder beside this file with a class of this kind; nothing else names it.

A folder has the same few files, each with the functions that `Engine` calls: ``__init__.py`` (what the engine can do, as
data), ``lowering.py`` (how it computes: ``lowering``, ``exact_nodes``), ``writer.py`` (its file: ``write``),
``runner.py`` (running it: ``load``), where it shows its inside, ``inspection.py`` (``reveal``, ``profile``) and, where its
rules are known, ``rules.py`` (``broken_rules``). The first is imported with Quaver and must stay light; the others are when
they are needed.
"""

from collections.abc import Collection
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaver.machine.cpu import cpu

if TYPE_CHECKING:
    from torch import fx

    from quaver.engines.file_rules import BrokenRule
    from quaver.engines.inspection import Profile, Revealed
    from quaver.graph.nodes import Facts
    from quaver.graph.rewriter import Lowering
    from quaver.image_input import ImageInput
    from quaver.preprocessing import Preprocessing
    from quaver.program import Program
    from quaver.runtime.runner import Runner


class Engine:
    """An engine that runs programs. What it can do is data:

    ``name``: what configs and artefacts call it. ``package``: the Python package that it is, ``title`` its proper name, and
    ``requirement`` what pip installs. ``suffix``: the file that is written for it; ``reads``: all that it can run.
    ``folder``: where its file lies in the tree of a conversion. ``input_layouts``: the orders in which its files can take
    images; ``takes_bytes``: its files can take them as a camera gives them, and ``scales_images``: of another size.

    ``op_types``: what it runs in int8. ``unsigned``: it takes 0 … 255 for tensors that cannot be negative (or has the same
    grid, shifted). ``fuses_add``: it computes a convolution and the addition behind it in one step, on the unrounded sum; a
    quantizer between the two would be simulated and never executed. ``rounds_products``: it computes a product on integers
    only where the result is quantized at once. ``asymmetric``: convolutions take tensors whose zero point is any, at no
    cost. ``rounds_as_written``: it executes each rounding of the file, between a
    convolution and the addition behind it, too. ``saturates``: on some processors it adds two products in 16 bits.
    ``packs_weights``: its files hold weights of 4 bits in 4 bits.

    ``shows_inside``: it shows its tensors. ``tells_layers``: it tells what it executes. ``has_rules``: it is known what it
    asks of a file. ``weights``: what the file is called that holds them beside a model, if one does. ``remedy``: what to try
    where it died. ``caveat``: what has to be said beside a verdict, where another executes its files here. ``script``: lines
    of Python that need the engine's own package alone, imports first: ``outputs`` of a ``batch`` by the file at ``path``,
    whose input is called ``{input}``.
    """

    name: str
    package: str
    title: str
    requirement: str
    suffix: str
    reads: tuple[str, ...]
    folder = "int8"
    input_layouts: tuple[str, ...] = ("nchw",)
    takes_bytes = False
    scales_images = False
    op_types: tuple[str, ...]
    unsigned = True
    fuses_add = False
    rounds_products = False
    asymmetric = False
    rounds_as_written = False
    shows_inside = False
    tells_layers = False
    has_rules = False
    saturates = False
    packs_weights = False
    weights = ""
    caveat = ""
    remedy = "Run it on another engine, or install another version of this one."
    script: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported here."""
        return find_spec(self.package) is not None

    @property
    def can_write(self) -> bool:
        """Whether its files can be written here."""
        return self.is_installed

    def file_in(self, tree: Path) -> Path:
        """Where its file lies in the tree of a conversion."""
        return tree / self.folder / f"model{self.suffix}"

    def saturates_here(self) -> bool:
        """Whether weights of full range overflow on this processor."""
        return self.saturates and cpu().saturates(onednn=False)

    # its arithmetic

    def form(self, program: "Program") -> "Program":
        """An int8 or float program in the form that the engine's file holds, in the engine's arithmetic."""
        return self.rewrite(program.made_for(self.name))

    def rewrite(self, program: "Program") -> "Program":
        """An int8 program with the graph that the engine needs, where that is another."""
        return program

    def lowering(self) -> "Lowering":
        """A rewriter that turns an evaluation graph into one that computes as the engine does."""
        return self._part("lowering").lowering()  # type: ignore[no-any-return]

    def exact_nodes(self, facts: "Facts") -> "set[fx.Node]":
        """The nodes of a frozen graph at which the engine gives the simulation's bits, given those of their inputs."""
        return self._part("lowering").exact_nodes(facts)  # type: ignore[no-any-return]

    def is_exact_here(self, origin: dict[str, Any]) -> bool:
        """Whether that holds on this processor, for an artefact of this origin."""
        return True

    # its file, running it, looking inside it

    def write(self, program: "Program", file: Path, origin: dict[str, Any], options: "WriteOptions") -> None:
        """Write a program in the engine's form, with its origin inside; an `EngineError` where that cannot be."""
        self._part("writer").write(program, file, origin, options)

    def weights_beside(self, file: Path) -> Path | None:
        """The file beside an artefact that holds its weights, if it has one."""
        return file.with_name(self.weights.format(stem=file.stem, name=file.name)) if self.weights else None

    def broken_rules(self, file: Path) -> "list[BrokenRule] | None":
        """Where a file breaks a rule that the engine asks files to keep; None where none are known."""
        return self._part("rules").broken_rules(file) if self.has_rules else None

    def load(self, file: Path, threads: int) -> "Runner":
        """A runner for a file that the engine reads."""
        runner: Runner = self._part("runner").load(file, threads)
        runner.threads = threads
        return runner

    def reveal(self, file: Path, tensors: list[str], threads: int, apart: Collection[str]) -> "Revealed | None":
        """Runners that show these quantized tensors as well; None where the engine does not show its inside."""
        return self._part("inspection").reveal(file, tensors, threads, apart) if self.shows_inside else None

    def profile(self, file: Path, threads: int, batch: int, rounds: int) -> "Profile | None":
        """What the engine executes for a random batch, layer by layer; None where it does not tell."""
        return self._part("inspection").profile(file, threads, batch, rounds) if self.tells_layers else None

    def _part(self, name: str) -> Any:
        return import_module(f"{type(self).__module__}.{name}")


class WriteOptions:
    """How files are to be written, and what writers of several engines share while they write one program."""

    def __init__(
        self,
        *,
        same_on_amx: bool = True,
        input_layout: str = "nchw",
        image: "ImageInput | None" = None,
        preprocessing: "Preprocessing | None" = None,
    ) -> None:
        self.same_on_amx = same_on_amx
        self.input_layout = input_layout
        self.image = image
        self.preprocessing = preprocessing
        self.shared: dict[str, Any] = {}
