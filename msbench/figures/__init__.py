"""What is computed from a database: times, ratios, verdicts, standings, and trials of the evaluator."""
