"""Layer `tasks` of Stepladder."""
