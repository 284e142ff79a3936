"""Records of what is computed while a tape is open, at once and on values, and derivatives taken of them."""
