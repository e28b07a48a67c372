"""Coterie: decentralised federated learning on any graph, with no server."""

__version__ = "0.1.0"
