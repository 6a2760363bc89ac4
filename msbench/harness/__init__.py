"""Builds, checks, measures and profiles candidates: one module per stage; evaluate.py runs them in order."""
