"""Layer `integrations` of Stepladder."""
