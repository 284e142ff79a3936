"""Training of Estimators whose variables lie on parameter servers."""
