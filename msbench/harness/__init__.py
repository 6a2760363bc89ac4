"""Builds, checks, measures and profiles candidates: one module a stage; evaluate.py is the way through them."""
