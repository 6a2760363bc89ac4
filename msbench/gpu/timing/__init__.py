"""Times versions against each other."""
