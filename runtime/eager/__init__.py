"""One op at a time: the gate, autograd nodes, the engine. docs/architecture.md says what is in each file."""
