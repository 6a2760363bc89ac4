"""Which cases a version is checked on, and how its outputs are compared."""
