"""Engines: where the nodes live. One file each; found by looking."""
