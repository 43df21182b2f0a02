"""Pure functions of arrays. Every matrix says whether it is a distance or a similarity."""
