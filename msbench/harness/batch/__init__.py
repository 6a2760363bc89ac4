"""Many tasks at a time."""
