"""Peers in trouble: killed, stopped, lied to, cut off, besieged. They must lose nothing, let nobody in, and learn."""
