"""What builds the miniatures: tiny checkpoints of the families' real architectures.

`dialogues` and `recipe` need neither torch nor transformers; everything that does is imported by
`python -m pytest_vllm_gates.miniatures build` alone. `checkpoints/miniatures.py` finds the built ones.
"""
