"""Layer `cli` of Stepladder."""
