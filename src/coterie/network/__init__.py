"""The mathematics of networks: graphs, faults, gains, mixing. Nothing here knows of models or data."""
