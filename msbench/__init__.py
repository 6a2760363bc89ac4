"""msbench: make CUDA kernels fast with language-model agents, and prove it."""

__version__ = "0.1.0"
