"""Objectives: what local training minimises. One file each; found by looking."""
