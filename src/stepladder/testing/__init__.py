"""Layer `testing` of Stepladder."""
