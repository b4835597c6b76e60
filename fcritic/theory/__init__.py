"""The theory of functional critics on finite problems, where every quantity can be computed exactly."""
