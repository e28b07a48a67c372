"""Rules: how a node merges what it hears. One file each; found by looking."""
