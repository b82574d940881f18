"""Layer `core` of Stepladder."""
