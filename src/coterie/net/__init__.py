"""Peers over a real network: who they are, what they say to each other, and how it gets there."""

import os

# Before gRPC is imported anywhere: it reads this once. Our own log has what matters.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
