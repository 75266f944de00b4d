"""Builds the miniatures: tiny checkpoints of the families' real architectures.

`dialogues` and `recipe` need neither torch nor transformers; everything else is imported only by
`python -m pytest_vllm_gates.miniatures build`. `checkpoints/miniatures.py` finds the built ones.
"""
