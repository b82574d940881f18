"""Layer `spec` of Stepladder."""
