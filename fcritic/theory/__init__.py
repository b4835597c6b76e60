"""The theory of functional critics on finite problems, where every quantity is computed exactly."""
