"""Layer `stats` of Stepladder."""
