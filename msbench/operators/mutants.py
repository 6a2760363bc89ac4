"""Wrong kernels: edits of an operator's naive kernel that its check must reject, from ``mutants.py`` in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msbench.errors import SpecError
from msbench.model import Candidate, Origin
from msbench.operators.loader import execute
from msbench.operators.versions import NAIVE, versions
from msbench.spec import Case, Operator, Precision, Split, Task

FILE = "mutants.py"

Edit = tuple[str, str]


@dataclass(frozen=True)
class Mutant:
    """One wrong kernel.

    ``edits`` are pairs of texts, old and new; each old one occurs in ``naive.cu`` exactly once. ``applies`` gets the
    dimensions of a case and says whether the mutant is wrong there (None: everywhere); ``precisions`` says in which
    precisions it is (None: in all). It shows on inputs of ``distribution``, in the ``variant`` of the check, and on each case or,
    without ``everywhere``, on one at least: a kernel that looks at samples is right where these tell it.
    """

    name: str
    edits: tuple[Edit, ...]
    applies: Callable[..., bool] | None = None
    precisions: tuple[Precision, ...] | None = None
    distribution: str = "uniform"
    variant: str = "aligned"
    everywhere: bool = True

    def source(self, naive: str) -> str:
        """The wrong kernel's source.

        Raises:
            SpecError: an edit's old text does not occur exactly once in the text as edited so far.
        """
        for old, new in self.edits:
            if naive.count(old) != 1:
                raise SpecError(f"mutant {self.name!r}: {old!r} occurs {naive.count(old)} times in {NAIVE}, not once.")
            naive = naive.replace(old, new)
        return naive

    def candidate(self, task: Task) -> Candidate:
        """The wrong kernel as a version that can be checked.

        Raises:
            SpecError: as for ``source``.
        """
        naive = versions(task)[0].source
        return Candidate(task.operator.name, task.precision, self.source(naive), Origin.EXTERNAL, label=self.name)

    def wrong_on(self, cases: Iterable[Case]) -> tuple[Case, ...]:
        """The cases on which the check must reject it, each once: on its inputs, and held-out ones with the usual scalars.

        ``applies`` knows no others; a mutant is right where the scalar that it has instead is drawn.
        """
        plain = (replace(case, distribution=self.distribution) for case in cases)
        usual = (replace(case, scalars=()) if case.split is Split.HELDOUT else case for case in plain)
        wanted = {case.id: case for case in usual}
        return tuple(c for c in wanted.values() if self.applies is None or self.applies(**dict(c.dims)))


def mutants(op: Operator) -> tuple[Mutant, ...]:
    """The wrong kernels that lie beside an operator's spec; none where there is no ``mutants.py``.

    Raises:
        SpecError: the file is wrong, or an edit no longer fits ``naive.cu``; file and mutant are named.
    """
    path = Path(op.folder) / FILE
    if not path.is_file():
        return ()
    found: Any = getattr(execute(path), "MUTANTS", None)
    if not isinstance(found, tuple) or not found or not all(isinstance(m, Mutant) for m in found):
        raise SpecError(f"{path}: declare MUTANTS = (Mutant(…), …), a tuple of msbench.operators.mutants.Mutant.")
    named = Counter((m.name, precision) for m in found for precision in m.precisions or op.precisions)
    twice = [f"{name!r} in {precision}" for (name, precision), count in named.items() if count > 1]
    if twice:
        raise SpecError(f"{path}: {', '.join(twice)} given more than once.")
    naive = versions(op.tasks[0])[0].source
    for mutant in found:
        try:
            mutant.source(naive)
        except SpecError as problem:
            raise SpecError(f"{path}: {problem}") from None
    return found
