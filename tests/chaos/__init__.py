"""Training under a supervisor, with faults at random instants, against the undisturbed run."""
