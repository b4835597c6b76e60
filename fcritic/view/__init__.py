"""Episodes to look at: a page that shows one in 3D in any browser, and a film where the machine can draw."""
