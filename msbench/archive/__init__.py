"""Whole databases: verified, merged, repaired, published, read as one."""
