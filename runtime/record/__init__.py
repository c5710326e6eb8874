"""A compiled call followed step by step. docs/architecture.md says what is in each file."""
