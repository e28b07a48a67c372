"""Reports: statistics, tables, figures and pages made from the records of runs, and from nothing else."""
