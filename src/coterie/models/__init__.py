"""Models: name to module. One file each; found by looking."""
