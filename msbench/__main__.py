"""`python -m msbench` is the `msbench` command."""

from msbench.cli import main

main()
