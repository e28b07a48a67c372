"""Carrying out experiments and studies: every method with every seed, recorded, interruptible, resumable."""
