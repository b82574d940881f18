"""Layer `rewards` of Stepladder."""
