"""Tensors in the memory of a GPU: their memory, the programs that compute them, and how ops, derivatives and updates
come to these.

A tensor whose memory is elsewhere has no array and belongs to no call: its `_meta` is a GpuArray (arrays.py), which
knows what to do where a tensor on the CPU would give its array. Nothing of this is imported before the first of them.
"""
