"""What a candidate's process may do, and communication with it."""
