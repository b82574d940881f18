"""Layer `monitors` of Stepladder."""
