"""PACFL's data signature."""
