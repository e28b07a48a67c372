"""A real peer: its runtime, what it agrees on with others, and how it is deployed."""
