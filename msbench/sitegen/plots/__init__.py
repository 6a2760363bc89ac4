"""The charts: built as figures for plotly, and drawn as still pictures."""
