"""What a node computes: training, evaluation, merging, exercises and measures. No process, no network, no disk."""
