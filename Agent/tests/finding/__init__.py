"""Finding: ranking, what a model is shown, and what its replies come to."""
