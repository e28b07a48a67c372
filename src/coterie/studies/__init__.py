"""Studies: the tables and figures of a paper as experiments. One file each; found by looking.

A study is a function from a scale to its exhibits (`coterie.runs.exhibits`), by label (`figure 3a`, `table II`).
"""
