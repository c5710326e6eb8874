"""Tensors, memory and modes: what every other part looks at. docs/architecture.md says what is in each file."""
