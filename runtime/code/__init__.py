"""From text to machine code, and the threads that run it. docs/architecture.md says what is in each file."""
