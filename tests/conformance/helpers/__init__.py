"""What TensorFlow's tests share, written anew for programs that run eagerly on lockstep."""
