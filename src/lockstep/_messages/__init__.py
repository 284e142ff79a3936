"""The pages on lockstep's errors: which page an error belongs to, where it is read, and its text."""
