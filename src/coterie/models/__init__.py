"""Models: name to module. One file each; found by looking.

A part of this room is a function `name(shape, classes, *, …settings) -> nn.Module`. The module takes a batch
`[B, *shape]` and gives `[B, classes]` scores.
"""
