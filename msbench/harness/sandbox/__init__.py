"""What a candidate's process may do, and how it is talked to."""
