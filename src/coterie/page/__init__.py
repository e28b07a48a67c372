"""The page that shows runs and peers: views as plain data, made of records alone; a server; and one front end."""

from importlib.resources import files

STATIC = files("coterie.page") / "static"
"""The front end: files that a browser takes as they are."""
