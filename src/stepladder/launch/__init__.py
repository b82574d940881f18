"""Layer `launch` of Stepladder."""
