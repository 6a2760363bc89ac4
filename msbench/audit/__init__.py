"""Audits kernels that follow a published calling convention instead of msbench's own. docs/audit.md tells how."""
