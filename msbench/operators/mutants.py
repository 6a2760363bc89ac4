"""Wrong kernels: edits of an operator's naive kernel that its check must reject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msbench.errors import SpecError
from msbench.spec import Precision


@dataclass(frozen=True)
class Mutant:
    """One wrong kernel.

    ``edits`` are pairs of texts, old and new; each old one occurs in ``naive.cu`` exactly once. ``applies`` gets the
    dimensions of a case and says whether the mutant is wrong there (None: everywhere); ``precisions`` says in which
    precisions it is (None: in all).
    """

    name: str
    edits: tuple[tuple[str, str], ...]
    applies: Callable[..., bool] | None = None
    precisions: tuple[Precision, ...] | None = None

    def source(self, naive: str) -> str:
        """The wrong kernel's source.

        Raises:
            SpecError: an edit's old text does not occur exactly once in the text as edited so far.
        """
        for old, new in self.edits:
            if naive.count(old) != 1:
                raise SpecError(f"mutant {self.name!r}: {old!r} occurs {naive.count(old)} times in naive.cu, not once.")
            naive = naive.replace(old, new)
        return naive
