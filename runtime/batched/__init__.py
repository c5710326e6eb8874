"""Tensors of many samples at once, each of which a function sees as one sample: `vmap`.

batch.py   what such a tensor has in place of an array, and the levels of vmaps inside each other
ops.py     an op on them: its batching rule on the tensors of all samples, and the node of one sample's
"""
