"""Data sets, how they are split among clients, and the federation that this makes."""
