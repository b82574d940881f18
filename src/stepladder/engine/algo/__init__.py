"""Layer `engine.algo` of Stepladder."""
