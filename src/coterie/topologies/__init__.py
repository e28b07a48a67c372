"""Topologies: families of graphs. One file each; found by looking."""
