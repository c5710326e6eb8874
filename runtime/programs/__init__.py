"""Recorded steps as data, and the programs that compute them. docs/architecture.md says what is in each file."""
