"""Tables, plots and pages from records, and from nothing else."""
