"""Layer `study` of Stepladder."""
