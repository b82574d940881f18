"""Layer `importers` of Stepladder."""
