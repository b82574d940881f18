"""Layer `engine` of Stepladder."""
