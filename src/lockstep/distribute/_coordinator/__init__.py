"""`ClusterCoordinator`: functions that are scheduled on the workers of a ParameterServerStrategy."""
