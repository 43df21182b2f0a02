"""The charts: one function each, from a plain table of numbers to an Altair chart. None of them knows a run."""
