"""Objectives: what local training minimises. One file each; found by looking.

An objective maps (logits, target, me) to one loss per sample; the engine takes the mean, because batches may be padded.
It may use what a node is (`me.size`, `me.labels`, …) but not when: `me.seed` and `me.round` are 0 here.
"""
