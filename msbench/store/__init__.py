"""The database: rows, conversions, runs, merging, integrity and figures."""
