"""From names and settings to an experiment, and from an experiment and a seed to a job."""
