"""weft beside its peers: the same work in weft, PyTorch and JAX, in alternating rounds on one machine.

    python -m benchmarks                                        every workload, every library that is installed
    python -m benchmarks --workload digits_mlp --threads 1      one workload, every library on one core
    python -m benchmarks idioms                                 what a call costs in many small programs (idioms/)

Read workloads/ for what is computed, sides/ for how each library is used, rounds.py for how time is taken, and
docs/benchmarks.md for what came out.
"""
