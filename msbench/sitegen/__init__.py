"""The site: static pages made from a store alone. ``build`` writes it, ``server`` shows it on this machine."""

from msbench.sitegen.build import Summary, build
from msbench.sitegen.serve import server

__all__ = ["Summary", "build", "server"]
