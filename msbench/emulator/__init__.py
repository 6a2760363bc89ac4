"""Compiles CUDA kernels for the host, so that they are checked with no GPU. docs/cpu_executor.md tells how."""

from msbench.emulator.build import Built, build
from msbench.emulator.host_compiler import HostCompiler, find
from msbench.emulator.lexer import tokens
from msbench.emulator.syntax import NotUnderstood, SourceFile

__all__ = ["Built", "HostCompiler", "NotUnderstood", "SourceFile", "build", "find", "tokens"]
