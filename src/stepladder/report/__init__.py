"""Layer `report` of Stepladder."""
