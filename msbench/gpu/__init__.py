"""The device: measured processes, timing, profiling, and what the hardware can do."""
