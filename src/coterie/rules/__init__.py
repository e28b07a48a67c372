"""Rules: how a node merges what it hears. One file each; found by looking."""

from coterie.contract import Rule

BASE = Rule
