"""What msbench's own figures are worth: a kernel against itself, and against itself slowed down by a known amount."""
