"""From a source text to a library: toolchain, compilation, what the compiler said."""
