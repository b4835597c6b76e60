"""Studies: a question, the trainings that it needs, verdicts with their figures, and a picture."""
