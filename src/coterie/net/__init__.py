"""Peers over a real network: who they are, what they say to each other, and how it gets there."""
