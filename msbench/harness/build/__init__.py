"""From a source text to a library: toolchain, compilation, compiler output."""
