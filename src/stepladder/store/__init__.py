"""Layer `store` of Stepladder."""
