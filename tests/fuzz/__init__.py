"""Bad input: whatever it is, an answer in msbench's words. `make fuzz` tries far more of it than `make test`."""
