"""The headers in kernels/include, each on the cpu executor against known answers."""
