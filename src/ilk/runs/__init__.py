"""Runs: how they are played, kept in a folder, resumed, and put together to experiments."""
