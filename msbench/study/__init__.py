"""How far msbench's own figures can be trusted: a kernel against itself, and against itself slowed down by a known amount."""
