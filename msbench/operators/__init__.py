"""Operators: what there is to compute, read from ``kernels/<name>/spec.py`` and from a user's own folder.

A folder with a ``spec.py`` is an operator; each ``.cu`` file in it is a version. Nothing else has to be registered.
"""

from msbench.operators.cases import heldout, nearly, select_cases, twin, twins_among, vary, with_twins
from msbench.operators.header import entry, header, prototype, workspace_prototype
from msbench.operators.loader import load, load_all, names, place
from msbench.operators.mutants import Mutant, mutants
from msbench.operators.scaffold import scaffold
from msbench.operators.shapes import elements, shape, shapes
from msbench.operators.versions import versions

__all__ = [
    "Mutant",
    "elements",
    "entry",
    "header",
    "heldout",
    "load",
    "load_all",
    "mutants",
    "names",
    "nearly",
    "place",
    "prototype",
    "scaffold",
    "select_cases",
    "shape",
    "shapes",
    "twin",
    "twins_among",
    "vary",
    "versions",
    "with_twins",
    "workspace_prototype",
]
