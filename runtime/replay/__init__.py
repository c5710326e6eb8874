"""A compiled call that is like the one before. docs/architecture.md says what is in each file."""
