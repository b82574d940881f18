"""Layer `sinks` of Stepladder."""
